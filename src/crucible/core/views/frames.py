"""Frames of the job sockets, one per message, and the cursors with which a client resumes."""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from crucible.core.views.base import View
from crucible.core.views.jobs import HealthView, JobView, ProgressView
from crucible.core.views.records import EventView, SeriesView

MAX_OFFSET = 2**53
"""The largest number that every JSON reader keeps exact."""


class Cursors(BaseModel):
    """How much of a job a client already has, as the query of the socket.

    The server sends events with a number above `after`, and the output of `attempt` from byte `offset` on.
    """

    model_config = ConfigDict(frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    attempt: Annotated[int | None, Field(ge=1, le=1_000_000, description="default: the newest")] = None


class FeedCursor(BaseModel):
    """How much of the event feed a client already has, as the query of the socket: later events follow."""

    model_config = ConfigDict(frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class EventFrame(View):
    """An event; `cursor` is its number in its job or, in the feed of all jobs, its position in that feed."""

    stream: Literal["event"] = "event"
    cursor: int
    event: EventView


class LogFrame(View):
    """Output; `cursor` is the offset of the byte after it, from which to resume."""

    stream: Literal["log"] = "log"
    attempt: int
    cursor: int
    text: str


class JobFrame(View):
    """The job, whenever its state has changed. The last frame of an ended job includes its health."""

    stream: Literal["job"] = "job"
    job: JobView


class HealthFrame(View):
    stream: Literal["health"] = "health"
    health: HealthView


class ProgressFrame(View):
    stream: Literal["progress"] = "progress"
    progress: ProgressView


class NewPointsView(SeriesView):
    """A series with only its new points; the first has the index `from`; 0 replaces the whole series."""

    model_config = ConfigDict(serialize_by_alias=True)

    first: int = Field(default=0, validation_alias=AliasChoices("from", "first"), serialization_alias="from")


class PointsFrame(View):
    """The series that have new points."""

    stream: Literal["points"] = "points"
    series: dict[str, NewPointsView]


Frame = EventFrame | LogFrame | JobFrame | HealthFrame | ProgressFrame | PointsFrame
AnyFrame = Annotated[Frame, Field(discriminator="stream")]
"""Any frame, parsed by its `stream`."""
