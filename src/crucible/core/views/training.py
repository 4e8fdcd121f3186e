"""Training jobs in the format of training requests."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes
from crucible.core.views.jobs import TERMINAL, CostView, ProgressView, ReasonView


class TaskProgress(View):
    epoch: int | float = 0
    total_epochs: int | float | None = None
    progress_percent: int | float = 0
    message: str = ""


class TaskView(View):
    """`status` is queued, running, completed, failed or cancelled; `progress.message` describes its state, or why."""

    task_id: str
    status: str
    created_at: str | None = None
    progress: TaskProgress = TaskProgress()

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


class ExecutionView(PartialView):
    """A training that was submitted or resumed; `resume_from` is the checkpoint it continues from."""

    job_id: str
    execution_id: str
    resume_from: str | None = sometimes(None)


class EndingView(View):
    job_id: str
    status: str


class RecordView(View):
    """A training: its config and its progress."""

    job_id: str
    user_id: str = ""
    tenant_id: str = ""
    model_name: str | None = None
    config: dict[str, object] = Field(default_factory=dict)
    status: str = ""
    phase: str = ""
    execution_id: str = ""
    executor_type: str | None = None
    current_epoch: int | float | None = None
    current_metrics: dict[str, float | None] = Field(default_factory=dict)
    total_epochs: int | float | None = None
    progress: ProgressView | None = None
    reason: ReasonView | None = None
    waiting: str | None = None
    cost: CostView = Field(default_factory=CostView)
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None


class OutputView(View):
    """Output as text; continue with `next_offset` until `complete`."""

    job_id: str
    logs: str = ""
    attempt: int = 0
    offset: int = 0
    next_offset: int = 0
    complete: bool = False


class NewestView(View):
    """The newest values; `timestamp`: when the last of them arrived, in seconds since 1970."""

    job_id: str
    epoch: int | float | None = None
    timestamp: float | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)
