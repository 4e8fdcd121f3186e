"""What the sockets of jobs send, one frame a message, and from where a client asks to go on."""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from crucible.core.views.base import View
from crucible.core.views.jobs import HealthView, JobView, ProgressView
from crucible.core.views.records import EventView, SeriesView

MAX_OFFSET = 2**53
"""The largest number that every JSON reader keeps exact."""


class Cursors(BaseModel):
    """What a client has of a job already, as the query of the socket.

    Events with a number above `after` follow, and the output of `attempt` from byte `offset` on.
    """

    model_config = ConfigDict(frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    attempt: Annotated[int | None, Field(ge=1, le=1_000_000, description="default: the newest")] = None


class FeedCursor(BaseModel):
    """What a client has of the events of all jobs, as the query of the socket: those with a cursor above follow."""

    model_config = ConfigDict(frozen=True)

    after: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0


class EventFrame(View):
    """An event; `cursor` is its number in its job or, where all jobs are followed, among the events of all."""

    stream: Literal["event"] = "event"
    cursor: int
    event: EventView


class LogFrame(View):
    """Output; `cursor` is the offset of the byte after it, from which to go on."""

    stream: Literal["log"] = "log"
    attempt: int
    cursor: int
    text: str


class JobFrame(View):
    """The job itself, whenever its state has changed. The last frame of an ended job has its health."""

    stream: Literal["job"] = "job"
    job: JobView


class HealthFrame(View):
    stream: Literal["health"] = "health"
    health: HealthView


class ProgressFrame(View):
    stream: Literal["progress"] = "progress"
    progress: ProgressView


class NewPointsView(SeriesView):
    """A series with its new points alone, the first of which is number `from`; 0 draws the series again."""

    model_config = ConfigDict(serialize_by_alias=True)

    first: int = Field(default=0, validation_alias=AliasChoices("from", "first"), serialization_alias="from")


class PointsFrame(View):
    """The series that have new points."""

    stream: Literal["points"] = "points"
    series: dict[str, NewPointsView]


Frame = EventFrame | LogFrame | JobFrame | HealthFrame | ProgressFrame | PointsFrame
AnyFrame = Annotated[Frame, Field(discriminator="stream")]
"""To read one whose kind is not known."""
