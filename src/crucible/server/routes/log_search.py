"""Searching the output of a job on the server, where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AfterValidator
from starlette.requests import ClientDisconnect, Request

from crucible.control.telemetry import log_search
from crucible.control.telemetry.grep import Pattern
from crucible.core.views.search import HitPage
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import AttemptNumber, Cursor

MAX_QUERY = 1000
LOOK_SECONDS = 0.1
"""How often it is looked whether the reader is still there."""

router = APIRouter(prefix="/api/v1/jobs", tags=["logs"])


def _one_line(text: str) -> str:
    if "\n" in text or "\x00" in text:
        raise ValueError("a line holds no newline and no NUL character, so nothing could be found")
    return text


Sought = Annotated[
    str,
    Query(min_length=1, max_length=MAX_QUERY, description="text, or with `regex` an expression in RE2's syntax"),
    AfterValidator(_one_line),
]


@router.get("/{id}/logs/search", responses=problem_responses(404, 409, 504))
async def search_logs(
    id: JobRef,
    request: Request,
    control: Control,
    who: Who,
    q: Sought,
    regex: Annotated[bool, Query(description="`q` is an expression, not a text")] = False,
    case: Annotated[bool, Query(description="upper and lower case differ")] = True,
    attempt: Annotated[AttemptNumber, Query(description="only this one, not all")] = None,
    context: Annotated[int, Query(ge=0, le=10, description="lines before and after each that matches")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = None,
) -> HitPage:
    """Lines of the output that match, in its order: attempt, line number, byte offset, the line and those around it.

    `next` is the cursor to go on from, also when a request has searched for 8 seconds; null at the end.
    `complete` says that nothing will follow. Of a line longer than 2,000 bytes the part around the match is shown.
    """
    query = log_search.Query(Pattern(q, regex, case), attempt, context, limit, cursor)
    return await _while_read(request, control.outputs.search_logs(who, id, query))


async def _while_read(request: Request, work: Coroutine[Any, Any, HitPage]) -> HitPage:
    """What `work` answers; it is cancelled as soon as nobody waits for that any more."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
