"""A filter for jobs, with the same fields in the API, the SDK and the command line.

A job has to match every field, and have every tag; of a field with several values, any one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from crucible.core.errors import UnknownName
from crucible.core.job.spec import Kind
from crucible.core.job.states import JobState, Status, states_of
from crucible.core.job.tags import MAX_KEY, MAX_VALUE, Tag, parse_tag
from crucible.core.patterns import TEXT_PATTERN

MAX_VALUES = 20
MAX_TEXT = 200
ANY_ENDING = "*"
"""At the end of a name: match names that begin so, instead of names that contain it."""

_REPEATED = "repeated, or with commas"
_TIME = "ISO 8601 (default time zone: UTC) or seconds since 1970"

Word = Annotated[str, Field(min_length=1, max_length=100, pattern=TEXT_PATTERN)]
Words = Annotated[tuple[Word, ...], Field(max_length=MAX_VALUES)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=TEXT_PATTERN)]
TagText = Annotated[str, Field(min_length=1, max_length=MAX_KEY + MAX_VALUE + 1, pattern=TEXT_PATTERN)]


class JobFilter(BaseModel):
    """A filter for jobs; an empty one matches every job."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    status: Annotated[Words, Field(description=f"any of {', '.join(Status)}; {_REPEATED}")] = ()
    active: Annotated[bool, Field(description="only jobs that have not ended")] = False
    backend: Annotated[Words, Field(description=f"any of these; {_REPEATED}")] = ()
    kind: Annotated[Words, Field(description=f"any of {', '.join(Kind)}; {_REPEATED}")] = ()
    project: Annotated[Words, Field(description=f"any of these; {_REPEATED}")] = ()
    name: Annotated[Text | None, Field(description="a part of the name, or its beginning and `*`; ignores case")] = None
    named: Annotated[Text | None, Field(description="the exact name")] = None
    tag: Annotated[
        tuple[TagText, ...],
        Field(max_length=MAX_VALUES, description="`key=value`, or `key` with any value; repeated: all of them"),
    ] = ()
    text: Annotated[
        Text | None, Field(description="a part of the name, the command or the path of the code; ignores case")
    ] = None
    created_after: Annotated[datetime | None, Field(description=f"at or after this time: {_TIME}")] = None
    created_before: Annotated[datetime | None, Field(description=f"before this time: {_TIME}")] = None

    @field_validator("status", "backend", "kind", "project", mode="before")
    @classmethod
    def _separated(cls, value: object) -> object:
        """Accept `["queued", "running"]` or `["queued,running"]`."""
        return split_commas(value) if isinstance(value, list | tuple) else value

    @field_validator("created_after", "created_before")
    @classmethod
    def _aware(cls, value: datetime | None) -> datetime | None:
        """Take a time without a zone as UTC."""
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)

    @property
    def empty(self) -> bool:
        return self == JobFilter()

    @property
    def needs_spec(self) -> bool:
        """Whether it filters by more than a job's row and its tags."""
        return bool(self.kind or self.name or self.named or self.text)

    @property
    def tags(self) -> tuple[Tag, ...]:
        return tuple(map(parse_tag, self.tag))

    def states(self) -> frozenset[JobState] | None:
        """Return the states that match, None for any. Raises UnknownName for an unknown status."""
        matching = [_states(name) for name in self.status]
        found = frozenset[JobState]().union(*matching) if matching else frozenset(JobState)
        if self.active:
            found = frozenset(state for state in found if not state.terminal)
        return None if len(found) == len(JobState) else found

    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds to match. Raises UnknownName for an unknown kind."""
        return tuple(map(_kind, self.kind))


def split_commas(values: Iterable[object]) -> tuple[object, ...]:
    return tuple(
        part for item in values for part in (item.split(",") if isinstance(item, str) else (item,)) if part != ""
    )


def _states(name: str) -> frozenset[JobState]:
    try:
        return states_of(Status(name))
    except ValueError:
        raise UnknownName("status", name, [status.value for status in Status]) from None


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        raise UnknownName("kind of job", name, [kind.value for kind in Kind]) from None
