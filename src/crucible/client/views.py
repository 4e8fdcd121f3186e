"""What the server answers, as frozen values.

Unknown fields are kept, so a newer server's answer is printed whole by `--json`. Annotations are values here and in
the neighbours: as texts they would be compiled one by one each time a command starts.
"""

from pydantic import BaseModel, ConfigDict, Field

from crucible.core.offers import Availability, Market, Offer
from crucible.core.resources import Capacity

TERMINAL = frozenset({"completed", "failed", "cancelled"})


class View(BaseModel):
    # Built at first use: a command needs a few of these.
    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json")


class ReasonView(View):
    code: str
    message: str = ""
    advice: str | None = None


class ProgressView(View):
    fraction: float | None = None
    percent: float | None = None
    epoch: int | float | None = None
    total_epochs: int | float | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    eta_seconds: float | None = None
    message: str | None = None


class CostView(View):
    usd: str = "0.000000"
    micros: int = 0
    rate_micros_per_hour: int = 0
    estimated_remaining_micros: int | None = None
    remaining_unknown: str | None = None
    """Why nobody can say what is still to come."""


class FindingView(View):
    """One thing that was seen of a job's health; `evidence` are the numbers it rests on."""

    verdict: str
    level: str = "good"
    message: str = ""
    advice: str | None = None
    series: str | None = None
    step: float | None = None
    evidence: dict[str, float | None] = {}


class HealthView(View):
    """How a job does: the verdict is that of the worst finding, `level` is bad, warning or good."""

    verdict: str
    level: str = "good"
    message: str = ""
    advice: str | None = None
    findings: tuple[FindingView, ...] = ()

    @property
    def called(self) -> str:
        return self.verdict.replace("_", " ")


class LineView(View):
    """One setting or measure of all compared jobs, in their order; `winner` is the place of the best."""

    name: str
    values: tuple[str | int | float | bool | None, ...] = ()
    differs: bool = False
    winner: int | None = None


class MeasuresView(View):
    last: tuple[LineView, ...] = ()
    best: tuple[LineView, ...] = ()


class CheckpointView(View):
    """What a job saved. `name` is the file's or folder's own; a folder is fetched as a tar archive.

    `kept` is false for one that was removed since; `why` says why it is kept, or why it went.
    """

    id: str = ""
    short: str = ""
    name: str = ""
    form: str = "file"
    step: int | None = None
    metric: float | None = None
    size: int = 0
    sha256: str = ""
    attempt: int | None = None
    stored_at: str | None = None
    kept: bool = True
    why: str | None = None
    latest: bool = False
    best: bool = False

    @property
    def called(self) -> str:
        return self.short or self.id or self.name

    @property
    def file_name(self) -> str:
        """What its download is called."""
        return f"{self.name}.tar" if self.form == "folder" else self.name


class CheckpointPage(View):
    items: tuple[CheckpointView, ...] = ()


class AttemptView(View):
    """One try; `resume_from` is the checkpoint it began with, `reason` and `detail` say why it ended."""

    number: int
    id: str = ""
    state: str = ""
    reason: str | None = None
    detail: str | None = None
    backend: str | None = None
    region: str | None = None
    instance_type: str | None = None
    market: str | None = None
    simulated: bool = False
    resume_from: CheckpointView | None = None
    progress: ProgressView | None = None
    steps_lost: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    ended_at: str | None = None


class SourceView(View):
    """Where the code came from."""

    kind: str = ""
    path: str | None = None
    url: str | None = None


class EnvironmentView(View):
    """Which Python was chosen; `origin` says in words how."""

    interpreter: str | None = None
    requirements: tuple[str, ...] = ()
    project: str | None = None
    origin: str = ""


class ResultView(View):
    """What a job found out: a JSON value, the kind of job it comes from, and the number of the attempt."""

    kind: str = "value"
    value: object = None
    attempt: int | None = None


class JobView(View):
    """A job as the server sees it. Times are ISO texts in UTC."""

    id: str
    status: str
    phase: str
    short: str = ""
    name: str | None = None
    kind: str = "train"
    backend: str | None = None
    machine: str | None = None
    tier: str | None = None
    reason: ReasonView | None = None
    waiting: str | None = None
    placement: str | None = None
    progress: ProgressView | None = None
    cost: CostView = Field(default_factory=CostView)
    exit_code: int | None = None
    signal: int | None = None
    attempt: int | None = None
    attempts: tuple[AttemptView, ...] = ()
    checkpoint: CheckpointView | None = None
    previous_backend: str | None = None
    generation: int = 1
    conditions: tuple[str, ...] = ()
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    ran_seconds: float | None = None
    desired: str = "run"
    grace_seconds: float | None = None
    command: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: SourceView = Field(default_factory=SourceView)
    environment: EnvironmentView = Field(default_factory=EnvironmentView)
    bundle: str | None = None
    execution_id: str | None = None
    simulated: bool = False
    recent_logs: tuple[str, ...] = ()
    metrics: dict[str, float | None] = {}
    health: HealthView | None = None
    result: ResultView | None = None
    notes: tuple[dict[str, str | None], ...] = ()

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def waits(self) -> bool:
        """Whether it is still to be started, for the first time or again."""
        return self.status == "queued"

    @property
    def called(self) -> str:
        """What to call it when talking to a person."""
        return self.short or self.id

    @property
    def is_simulated(self) -> bool:
        """Whether any of it runs, or ran, at a simulated place."""
        return self.simulated or any(attempt.simulated for attempt in self.attempts)

    @property
    def own_code(self) -> int:
        """The code that following this job returns: the job's own, 128 + signal when a signal ended it.

        A job that did not complete never gives 0, even if its process ended with it.
        """
        if self.status == "completed":
            return 0
        if self.signal:
            return 128 + self.signal
        return self.exit_code or 1


class ComparedView(JobView):
    """A job as it is compared: `verdict` is its health in a word."""

    verdict: str | None = None


class ComparisonView(View):
    jobs: tuple[ComparedView, ...] = ()
    config: tuple[LineView, ...] = ()
    metrics: MeasuresView = Field(default_factory=MeasuresView)


class JobPage(View):
    items: tuple[JobView, ...] = ()
    next: str | None = None


class EventView(View):
    n: int = 0
    type: str = ""
    at: str | float | None = None
    data: dict[str, object] = {}


class EventPage(View):
    items: tuple[EventView, ...] = ()


class SeriesView(View):
    """One metric. A point is (step, value, time)."""

    count: int = 0
    last: float | None = None
    min: float | None = None
    max: float | None = None
    points: tuple[tuple[float | None, float | None, str | float | None], ...] = ()


class MetricsView(View):
    series: dict[str, SeriesView] = {}


class ArtifactView(View):
    path: str
    size: int
    sha256: str
    attempt: int | None = None


class ArtifactPage(View):
    items: tuple[ArtifactView, ...] = ()


class ModelView(View):
    """A model plugin. `schema` is None for one that takes any config; `error` says why one is broken."""

    name: str
    title: str = ""
    version: str = ""
    description: str = ""
    framework: str = ""
    distribution: str = ""
    min_gpu_memory_gb: float = 0
    methods: tuple[str, ...] = ()
    options: dict[str, dict[str, object]] | None = Field(default=None, alias="schema")
    error: dict[str, str | None] | None = None

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json", by_alias=True)


class ModelPage(View):
    items: tuple[ModelView, ...] = ()


class OfferView(View):
    """A place that could run a job, with its price by the hour; `why` it cannot just now."""

    backend: str = ""
    region: str = ""
    instance_type: str = ""
    capacity: Capacity
    market: Market = Market.ON_DEMAND
    rate_micros_per_hour: int = 0
    availability: str = Availability.AVAILABLE.value
    wait_seconds: float = 0.0
    startup_seconds: float = 0.0
    runnable: bool = True
    why: str | None = None

    def as_offer(self) -> Offer:
        return Offer(
            backend=self.backend,
            region=self.region,
            instance_type=self.instance_type,
            capacity=self.capacity,
            rate=self.rate_micros_per_hour,
            market=self.market,
            why_not=self.why or "",
        )


class PlannedView(OfferView):
    """An offer for one job. `most_micros`: what it costs if the machine lives until its hard end."""

    named: bool = True
    most_micros: int | None = None
    call: dict[str, object] | None = None
    ends_at: str | None = None


class PlanView(View):
    """`chosen` is None where the job would wait; `rejected` have the reason in `why`."""

    places: tuple[str, ...] = ()
    chosen: PlannedView | None = None
    offers: tuple[PlannedView, ...] = ()
    rejected: tuple[OfferView, ...] = ()


class BackendView(View):
    name: str
    connected: bool = False
    detail: str | None = None
    simulated: bool = False
    capabilities: dict[str, object] = {}
    offers: tuple[dict[str, object], ...] = ()

    @property
    def is_simulated(self) -> bool:
        return self.simulated or self.capabilities.get("simulated") is True


class BackendPage(View):
    items: tuple[BackendView, ...] = ()


class MachineView(View):
    """`owner` is who it is for, such as `attempt:att-…`; `native_id` what the provider calls it."""

    id: str = ""
    short: str = ""
    state: str = ""
    backend: str | None = None
    owner: str | None = None
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    native_id: str | None = None
    simulated: bool = False
    bills: bool = False
    rate_micros_per_hour: int = 0
    cost_micros: int = 0
    detail: str | None = None
    created_at: str | None = None

    @property
    def called(self) -> str:
        return self.short or self.id or self.native_id or ""

    @property
    def gone(self) -> bool:
        return self.state == "gone"


class MachinePage(View):
    items: tuple[MachineView, ...] = ()


class OrphanView(View):
    """A machine with our tag that we do not know, or that should be gone; `machine` is our id, if we know it."""

    backend: str = ""
    machine: str | None = None
    native_id: str = ""
    region: str | None = None
    why: str = ""


class OrphanPage(View):
    items: tuple[OrphanView, ...] = ()


class PrunedView(View):
    """One thing that was or would be removed."""

    what: str = ""
    job: str | None = None
    bytes: int = 0
    why: str = ""


class UnprunedView(View):
    """An object that could not be removed from the store."""

    key: str = ""
    why: str = ""


class PruneView(View):
    """Counts of what was removed, or, after a dry run, of what would be."""

    jobs: int = 0
    checkpoints: int = 0
    artifacts: int = 0
    logs: int = 0
    bundles: int = 0
    bytes: int = 0
    dry_run: bool = False
    items: tuple[PrunedView, ...] = ()
    failed: tuple[UnprunedView, ...] = ()

    @property
    def is_any(self) -> bool:
        return bool(self.items or self.jobs or self.checkpoints or self.artifacts or self.logs or self.bundles)


class BackupView(View):
    path: str = ""
    bytes: int = 0
    sha256: str = ""


class ConfirmedView(View):
    """What the server says after a restore was confirmed."""


class ServerView(View):
    version: str = ""
    deployment: str = ""
    pid: int | None = None
    url: str | None = None
    home: str | None = None
    running: int = 0
    queued: int = 0
    billing: int = 0


class LogPage(View):
    """Bytes of one attempt's log: from `start` to `next`; `complete` when nothing more will come for it."""

    attempt: int
    attempts: int
    start: int
    next: int
    complete: bool
    data: bytes
