"""Finds jobs by id, id suffix or name."""

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
    """Return the job with this id, short id or id suffix, `last`, or else the newest job with exactly this name."""
    try:
        return api.job(ref)
    except (NotFound, Conflict) as error:
        named = _newest_named(api, ref)
        if named is None:
            raise error
        return api.job(named.id)


def _newest_named(api: Api, name: str) -> JobView | None:
    from crucible.core.job.job_filter import JobFilter  # imported here: only names need it

    try:
        filter = JobFilter(named=name)
    except ValidationError:
        return None  # no job can have such a name
    # A server that does not know this filter ignores it.
    return next((job for job in api.jobs(filter, limit=1).items if job.name == name), None)


def iterate_jobs(api: Api, filter: JobFilter, limit: int | None = None) -> Iterator[JobView]:
    """Yield the jobs that match, newest first, at most `limit` of them."""
    cursor: str | None = None
    left = limit
    while left is None or left > 0:
        page = api.jobs(filter, limit=PAGE if left is None else min(left, PAGE), cursor=cursor)
        yield from page.items
        cursor, left = page.next, None if left is None else left - len(page.items)
        if cursor is None or not page.items:
            return
