"""Jobs and what is theirs, as the server tells of them: core/views describes them, for server and client."""

from crucible.core.views.base import (
    View,
)
from crucible.core.views.jobs import (
    TERMINAL,
    AttemptView,
    CheckpointMark,
    CheckpointPage,
    CheckpointView,
    CostView,
    EnvironmentView,
    FindingView,
    HealthView,
    JobPage,
    JobView,
    ProgressView,
    ReasonView,
    ResultView,
    SourceView,
)
from crucible.core.views.records import (
    ArtifactPage,
    ArtifactView,
    EventPage,
    EventView,
    MetricsView,
    SeriesView,
)

__all__ = [
    "TERMINAL",
    "ArtifactPage",
    "ArtifactView",
    "AttemptView",
    "CheckpointMark",
    "CheckpointPage",
    "CheckpointView",
    "CostView",
    "EnvironmentView",
    "EventPage",
    "EventView",
    "FindingView",
    "HealthView",
    "JobPage",
    "JobView",
    "LogPage",
    "MetricsView",
    "ProgressView",
    "ReasonView",
    "ResultView",
    "SeriesView",
    "SourceView",
    "View",
]


class LogPage(View):
    """Bytes of one attempt's log: from `start` to `next`; `complete` when nothing more will come for it."""

    attempt: int
    attempts: int
    start: int
    next: int
    complete: bool
    data: bytes
