"""Jobs, their attempts, checkpoints, cost and health."""

from pydantic import Field

from crucible.core.compute.resources import Allocation, Resources
from crucible.core.views.base import PartialView, View, sometimes
from crucible.core.views.plans import JobPlanView

TERMINAL = frozenset({"completed", "failed", "cancelled"})


class ReasonView(View):
    code: str
    message: str = ""
    advice: str | None = None


class ProgressView(PartialView):
    """The progress that a program reports. `percent` is that of the job; an attempt has only what was reported."""

    fraction: float | None = None
    percent: float | None = sometimes(None)
    epoch: int | float | None = None
    total_epochs: int | float | None = None
    step: int | float | None = None
    total_steps: int | float | None = None
    loss: float | None = None
    eta_seconds: float | None = None
    message: str | None = None


class CostView(View):
    usd: str = "0.000000"
    micros: int = 0
    rate_micros_per_hour: int = 0
    estimated_remaining_micros: int | None = None
    remaining_unknown: str | None = None
    """Why the remaining cost is unknown."""


class FindingView(View):
    """One finding about a job's health; `evidence` holds the numbers behind it."""

    verdict: str
    level: str = "good"
    message: str = ""
    advice: str | None = None
    series: str | None = None
    step: float | None = None
    evidence: dict[str, float | None] = Field(default_factory=dict)


class HealthView(View):
    """The health of a job: the verdict is that of the worst finding; `level` is bad, warning or good."""

    verdict: str
    level: str = "good"
    message: str = ""
    advice: str | None = None
    findings: tuple[FindingView, ...] = ()
    judged_at: str | None = None

    @property
    def display_name(self) -> str:
        return self.verdict.replace("_", " ")


class CheckpointMark(View):
    """A reference to a checkpoint; its details are in the list of the job's checkpoints."""

    id: str = ""
    short: str = ""
    name: str = ""
    step: int | None = None

    @property
    def display_name(self) -> str:
        return self.short or self.id or self.name


class CheckpointView(CheckpointMark):
    """A checkpoint. `name` is the file's or folder's own; a folder is downloaded as a tar archive.

    `kept` is false for one that was removed; `why` says why it is kept or was removed.
    """

    form: str = "file"
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
    def file_name(self) -> str:
        """The file name of its download."""
        return f"{self.name}.tar" if self.form == "folder" else self.name


class CheckpointPage(View):
    items: tuple[CheckpointView, ...] = ()


class AttemptView(PartialView):
    """One attempt; `resume_from` is the checkpoint it started from, `reason` and `detail` say why it ended."""

    number: int
    id: str = ""
    state: str = ""
    reason: str | None = None
    detail: str | None = None
    backend: str | None = None
    machine: str | None = None
    region: str | None = None
    instance_type: str | None = None
    market: str | None = None
    simulated: bool = False
    resume_from: CheckpointMark | None = None
    progress: ProgressView | None = None
    allocation: Allocation | None = None
    steps_lost: int | None = sometimes(None)
    exit_code: int | None = None
    signal: int | None = None
    placed_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    last_seen: str | None = None
    facts: dict[str, object] | None = None
    """What its runner reported about the machine."""


class SourceView(View):
    """Where the code came from."""

    kind: str = ""
    path: str | None = None
    url: str | None = None
    ref: str | None = None
    commit: str | None = None
    dirty: bool = False


class EnvironmentView(View):
    """The Python environment of a job; `origin` describes how it was chosen."""

    interpreter: str | None = None
    requirements: tuple[str, ...] = ()
    project: str | None = None
    python: str | None = None
    origin: str = ""


class ResultView(View):
    """The result of a job: a JSON value, the kind of job it comes from, and the number of the attempt."""

    kind: str = "value"
    value: object = None
    attempt: int | None = None


class NoteView(View):
    id: str
    short: str = ""
    author: str = ""
    text: str = ""
    at: str | None = None

    @property
    def display_name(self) -> str:
        return self.short or self.id


class BriefJobView(View):
    """A job and its progress. Times are ISO texts in UTC."""

    id: str
    status: str
    phase: str
    short: str = ""
    name: str | None = None
    source: SourceView = Field(default_factory=SourceView)
    simulated: bool = False
    progress: ProgressView | None = None
    cost: CostView = Field(default_factory=CostView)
    exit_code: int | None = None
    created_at: str | None = None
    ran_seconds: float | None = None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_queued(self) -> bool:
        """Whether the job waits to be started, for the first time or again."""
        return self.status == "queued"

    @property
    def display_name(self) -> str:
        """The name to show to users."""
        return self.short or self.id

    @property
    def is_simulated(self) -> bool:
        """Whether any part of it runs, or ran, on a simulated backend."""
        return self.simulated


class JobView(BriefJobView, PartialView):
    """A job in full; the response for one job has more fields than those in a list."""

    project: str = ""
    user: str = ""
    kind: str = "train"
    backend: str | None = None
    machine: str | None = None
    tier: str | None = None
    reason: ReasonView | None = None
    waiting: str | None = None
    placement: str | None = None
    signal: int | None = None
    attempt: int | None = None
    attempts: tuple[AttemptView, ...] = ()
    checkpoint: CheckpointMark | None = None
    previous_backend: str | None = None
    generation: int = 1
    conditions: tuple[str, ...] = ()
    started_at: str | None = None
    ended_at: str | None = None
    desired: str = "run"
    grace_seconds: float | None = None
    resources: Resources = Field(default_factory=Resources)
    fallback: tuple[str, ...] = ()
    market: str | None = None
    rerun_of: str | None = None
    priority: int = sometimes(0)
    """Its order among the waiting jobs of the same user; only if it is not 0."""
    spot_fallback: bool = sometimes(False)
    """It runs on demand where no spot machine is available; only if it is true."""
    max_wait_seconds: float | None = sometimes(None)
    """How long it may stand in a provider's own queue; only if that is limited."""
    outputs: tuple[str, ...] | None = sometimes(None)
    """Patterns of the files in its working directory that are kept; only if those are not all."""
    outputs_left_out: str | None = sometimes(None)
    """Which outputs of its last attempt were not stored; only if there are such."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Environment variables and the names of the secrets that they hold."""
    command: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    environment: EnvironmentView = Field(default_factory=EnvironmentView)
    bundle: str | None = None
    execution_id: str | None = None
    recent_logs: tuple[str, ...] = sometimes(())
    metrics: dict[str, float | None] = sometimes({})
    health: HealthView | None = sometimes(None)
    result: ResultView | None = sometimes(None)
    notes: tuple[NoteView, ...] = sometimes(())
    predicted_seconds: float | None = sometimes(None)
    plan: JobPlanView | None = sometimes(None)

    @property
    def is_simulated(self) -> bool:
        return super().is_simulated or any(attempt.simulated for attempt in self.attempts)

    @property
    def result_code(self) -> int:
        """The exit code of a command that follows this job: the job's own, or 128 + signal if a signal ended it.

        A job that did not complete never gives 0, even if its process ended with it.
        """
        if self.status == "completed":
            return 0
        if self.signal:
            return 128 + self.signal
        return self.exit_code or 1


class JobPage(View):
    """`next` is the cursor of the next page; None on the last."""

    items: tuple[JobView, ...] = ()
    next: str | None = None
