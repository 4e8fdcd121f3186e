"""Outputs of jobs: logs, metrics, events and artifacts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from crucible.control.telemetry import log_search
from crucible.control.telemetry.grep import Pattern
from crucible.core.views.frames import MAX_OFFSET
from crucible.core.views.records import ArtifactPage, EventPage, MetricsView
from crucible.core.views.search import HitPage
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses
from crucible.server.http.stored_files import RANGE_STATUSES, FileResponse, send_file
from crucible.server.security.size_limits import AttemptNumber, Cursor, EventCount, LogBytes, MiB, Offset

MAX_QUERY = 1000
POLL_SECONDS = 0.1
"""How often a search checks that the client is still connected."""

router = APIRouter(prefix="/api/v1")


@router.get("/jobs/{id}/logs", tags=["logs"], responses=problem_responses(404, 409), response_class=PlainTextResponse)
async def logs(
    id: JobRef,
    control: Control,
    who: Who,
    attempt: AttemptNumber = None,
    offset: Annotated[int, Query(ge=-MAX_OFFSET, le=MAX_OFFSET, description="in bytes; negative: from the end")] = 0,
    limit: LogBytes = MiB,
    since: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="seconds since 1970")] = None,
) -> PlainTextResponse:
    """Return the output of one attempt (default: the newest) as it was written.

    `X-Crucible-Next` is the offset to continue from; with `X-Crucible-Complete: true` nothing follows it.
    """
    page = await control.outputs.logs(who, id, attempt=attempt, offset=offset, limit=limit, since=since)
    headers = {
        "X-Crucible-Attempt": str(page.attempt),
        "X-Crucible-Attempts": str(page.attempts),
        "X-Crucible-Offset": str(page.start),
        "X-Crucible-Next": str(page.next),
        "X-Crucible-Complete": "true" if page.complete else "false",
    }
    return PlainTextResponse(page.data, headers=headers)


def _one_line(text: str) -> str:
    if "\n" in text or "\x00" in text:
        raise ValueError("a line contains no newline and no NUL character, so nothing can match")
    return text


SearchText = Annotated[
    str,
    Query(min_length=1, max_length=MAX_QUERY, description="text, or with `regex` a regular expression in RE2 syntax"),
    AfterValidator(_one_line),
]


@router.get("/jobs/{id}/logs/search", tags=["logs"], responses=problem_responses(404, 409, 504))
async def search_logs(
    id: JobRef,
    request: Request,
    control: Control,
    who: Who,
    q: SearchText,
    regex: Annotated[bool, Query(description="`q` is a regular expression")] = False,
    case: Annotated[bool, Query(description="case-sensitive")] = True,
    attempt: Annotated[AttemptNumber, Query(description="search only this attempt (default: all)")] = None,
    context: Annotated[int, Query(ge=0, le=10, description="lines before and after each match")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = None,
) -> HitPage:
    """Return the matching lines of the output, in order: attempt, line number, byte offset, the line and its context.

    `next` is the cursor to continue from, also after a search that stopped at its limit of 8 seconds; null at the end.
    `complete` says that no more output will follow. A line longer than 2,000 bytes is cut to the part around the match.
    """
    query = log_search.Query(Pattern(q, regex, case), attempt, context, limit, cursor)
    return await _while_connected(request, control.outputs.search_logs(who, id, query))


async def _while_connected(request: Request, work: Coroutine[Any, Any, HitPage]) -> HitPage:
    """Return the result of `work`; cancel it as soon as the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=POLL_SECONDS))[0]:
            if await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()


@router.get("/jobs/{id}/metrics", tags=["metrics"], responses=problem_responses(404, 409))
async def metrics(
    id: JobRef,
    control: Control,
    who: Who,
    series: Annotated[list[str] | None, Query(max_length=200, description="names of series (default: all)")] = None,
    points: Annotated[int, Query(ge=1, le=10_000, description="maximum number of points of each series")] = 500,
) -> MetricsView:
    """Return each series with its count, last, min and max, and its points `[step, value, at]`."""
    return await control.outputs.metrics(who, id, series=series or [], points=points)


@router.get("/jobs/{id}/events", tags=["events"], responses=problem_responses(404, 409))
async def list_job_events(
    id: JobRef, control: Control, who: Who, after: Offset = 0, limit: EventCount = 200
) -> EventPage:
    """Return the events of one job with a number `n` above `after`, in order."""
    return await control.outputs.events(who, id, after=after, limit=limit)


@router.get("/events", tags=["events"])
async def list_events(control: Control, who: Who, after: Offset = 0, limit: EventCount = 200) -> EventPage:
    """Return the events of all jobs with a `cursor` above `after`, in one order that never changes."""
    return await control.outputs.events(who, None, after=after, limit=limit)


@router.get("/jobs/{id}/artifacts", tags=["artifacts"], responses=problem_responses(404, 409))
async def list_artifacts(id: JobRef, control: Control, who: Who) -> ArtifactPage:
    """List a job's artifacts: path, size, SHA-256 and attempt of each file."""
    return await control.outputs.artifacts(who, id)


@router.head("/jobs/{id}/artifacts/{path:path}", tags=["artifacts"], include_in_schema=False)
@router.get(
    "/jobs/{id}/artifacts/{path:path}",
    tags=["artifacts"],
    response_class=FileResponse,
    responses=problem_responses(404, 409, 416, also=RANGE_STATUSES),
)
async def download(
    id: JobRef, path: Annotated[str, Path(max_length=4096)], request: Request, control: Control, who: Who
) -> Response:
    """Download an artifact. Range resumes a broken download; If-Range makes sure that it is still the same file."""
    return await send_file(request, control.store, await control.outputs.artifact(who, id, path), path)
