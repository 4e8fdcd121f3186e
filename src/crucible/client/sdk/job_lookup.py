"""Finding jobs by what people remember of them: an id or an ending of it, or the name they gave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import ValidationError

from crucible.client.api import Api
from crucible.core.errors import Conflict, NotFound
from crucible.core.views.jobs import JobView

if TYPE_CHECKING:
    from crucible.core.job.job_filter import JobFilter

PAGE = 500


def find_job(api: Api, ref: str) -> JobView:
    """The job of this id, short id or ending, `last`, or else the newest one of exactly this name."""
    try:
        return api.job(ref)
    except (NotFound, Conflict) as error:
        named = _newest_named(api, ref)
        if named is None:
            raise error
        return api.job(named.id)


def _newest_named(api: Api, name: str) -> JobView | None:
    from crucible.core.job.job_filter import JobFilter  # needed for names alone

    try:
        wanted = JobFilter(named=name)
    except ValidationError:
        return None  # no job can have such a name
    # A server that does not know this filter answers with others.
    return next((job for job in api.jobs(wanted, limit=1).items if job.name == name), None)


def iterate_jobs(api: Api, wanted: JobFilter, limit: int | None = None) -> Iterator[JobView]:
    """The jobs that fit, newest first, page by page; at most `limit` of them."""
    cursor: str | None = None
    left = limit
    while left is None or left > 0:
        page = api.jobs(wanted, limit=PAGE if left is None else min(left, PAGE), cursor=cursor)
        yield from page.items
        cursor, left = page.next, None if left is None else left - len(page.items)
        if cursor is None or not page.items:
            return
