"""Filters of a list of jobs, as they stand in a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import ValidationError
from starlette.requests import Request

from crucible.core.errors import UnknownName
from crucible.core.jobfilter import MAX_TEXT, MAX_VALUES, JobFilter
from crucible.core.spec import Kind
from crucible.core.states import Status
from crucible.server.failures import bad_fields

STATUSES = tuple(status.value for status in Status)
KINDS = tuple(kind.value for kind in Kind)

PAGE = ("limit", "cursor")
"""What else a list is asked for."""

_TIME = "ISO 8601 (UTC unless it says a zone) or seconds since 1970"


def _several(description: str) -> Any:
    return Query(max_length=MAX_VALUES, description=f"{description}; repeated, or with commas")


Several = Annotated[list[str] | None, _several("any of these")]


async def _wanted(
    request: Request,
    status: Annotated[list[str] | None, _several(f"any of {', '.join(STATUSES)}")] = None,
    active: Annotated[bool, Query(description="only jobs that have not ended")] = False,
    backend: Several = None,
    kind: Annotated[list[str] | None, _several(f"any of {', '.join(KINDS)}")] = None,
    project: Several = None,
    name: Annotated[
        str | None, Query(max_length=MAX_TEXT, description="a part of the name, or its beginning and `*`; in any case")
    ] = None,
    named: Annotated[str | None, Query(max_length=MAX_TEXT, description="the whole name, as it is written")] = None,
    tag: Annotated[
        list[str] | None, Query(max_length=MAX_VALUES, description="`key=value`, or `key` with any value; all of them")
    ] = None,
    text: Annotated[
        str | None, Query(max_length=MAX_TEXT, description="a part of name, command or source, in any case")
    ] = None,
    created_after: Annotated[str | None, Query(max_length=40, description=f"at this time or later: {_TIME}")] = None,
    created_before: Annotated[str | None, Query(max_length=40, description=f"earlier than this: {_TIME}")] = None,
) -> JobFilter:
    _check_names(request.query_params)
    given = {
        "status": status,
        "active": active,
        "backend": backend,
        "kind": kind,
        "project": project,
        "name": name,
        "named": named,
        "tag": tag,
        "text": text,
        "created_after": created_after,
        "created_before": created_before,
    }
    return read_filter({key: value for key, value in given.items() if value is not None})


def _check_names(given: Iterable[str]) -> None:
    """A filter that was mistyped must not show every job."""
    known = (*JobFilter.model_fields, *PAGE)
    for name in given:
        if name not in known:
            raise UnknownName("parameter", name, known)


def read_filter(given: dict[str, Any]) -> JobFilter:
    """Raises BadInput for what is out of bounds, UnknownName for a status or kind that there is none of."""
    try:
        wanted = JobFilter.model_validate(given)
    except ValidationError as error:
        raise bad_fields(error.errors()) from error
    return checked(wanted)


def checked(wanted: JobFilter) -> JobFilter:
    """The filter, once its names and tags are known to make sense."""
    wanted.states(), wanted.kinds(), wanted.tags
    return wanted


Wanted = Annotated[JobFilter, Depends(_wanted)]
