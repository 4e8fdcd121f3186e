"""Finding jobs by what people remember of them: an id or an ending of it, or the name they gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from crucible.client.api import Api
from crucible.client.views import JobView
from crucible.core.errors import Conflict, NotFound

PAGE = 500
MOST_PAGES = 20
"""Names and tags are looked for in this many pages of jobs, newest first."""


def find_job(api: Api, ref: str) -> JobView:
    """The job of this id, short id or ending, `last`, or else the newest one of exactly this name."""
    try:
        return api.job(ref)
    except (NotFound, Conflict) as error:
        named = next((job for job in walk(api) if job.name == ref), None)
        if named is None:
            raise error
        return api.job(named.id)


def select(
    api: Api, fits: Callable[[JobView], bool], *, statuses: Sequence[str] = (), limit: int
) -> tuple[JobView, ...]:
    """The newest `limit` jobs that fit, as far back as names are looked for."""
    found: list[JobView] = []
    for job in walk(api, statuses):
        if len(found) == limit:
            break
        if fits(job):
            found.append(job)
    return tuple(found)


def walk(api: Api, statuses: Sequence[str] = (), *, pages: int = MOST_PAGES) -> Iterator[JobView]:
    """Jobs, newest first, page by page."""
    cursor: str | None = None
    for _ in range(pages):
        page = api.jobs(statuses=statuses, limit=PAGE, cursor=cursor)
        yield from page.items
        cursor = page.next
        if cursor is None or not page.items:
            return
