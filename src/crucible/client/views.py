"""Jobs and what is theirs, as the server tells of them; frozen values, as all its answers.

Unknown fields are kept, so a newer server's answer is printed whole by `--json`. Annotations are values here and in
the neighbours: as texts they would be compiled one by one each time a command starts.
"""

from pydantic import BaseModel, ConfigDict, Field

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


class LogPage(View):
    """Bytes of one attempt's log: from `start` to `next`; `complete` when nothing more will come for it."""

    attempt: int
    attempts: int
    start: int
    next: int
    complete: bool
    data: bytes
