"""An attempt's output by byte offset, from stored segments and, beyond them, the live tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.runtime.ports import Ports
from crucible.control.telemetry.tails import OutputTails
from crucible.core.errors import NotFound
from crucible.core.ids import short
from crucible.core.lifecycle import AttemptState, JobState
from crucible.core.views.records import LogPage
from crucible.storage import LogStore, Segment
from crucible.storage.layout import log_segment_key

READ_DEADLINE = 30.0
LARGEST_PAGE = 4 * 1024 * 1024

_a, _s = t.attempts.c, t.log_segments.c
_MINE = (_s.attempt == bindparam("of_attempt"), _s.rank == 0)
_STATE = Statement(select(t.jobs.c.state).where(t.jobs.c.id == bindparam("of_job")))
_ATTEMPTS = Statement(select(_a.id, _a.number, _a.state).where(_a.job == bindparam("of_job")).order_by(_a.number))
_END = Statement(select(_s.end).where(*_MINE).order_by(_s.end.desc()).limit(1))
_WITHIN = Statement(
    select(_s.n, _s.start, _s.end, _s.sha256, _s.hashed)
    .where(*_MINE, _s.end > bindparam("first"), _s.start < bindparam("last"))
    .order_by(_s.start)
)
_SINCE = Statement(select(_s.start).where(*_MINE, _s.stored_at >= bindparam("since")).order_by(_s.start).limit(1))


@dataclass(frozen=True)
class _Extent:
    id: str
    number: int
    attempts: int
    ended: bool
    end: int
    start: int
    segments: tuple[Segment, ...]


class Logs:
    def __init__(self, ports: Ports, tails: OutputTails) -> None:
        self._ports = ports
        self._tails = tails
        self._store = LogStore(ports.store)

    async def page(self, job: str, attempt: int | None, offset: int, limit: int, since: float | None) -> LogPage:
        """Return up to `limit` bytes from `offset` (negative: from the end). Empty for a job that never ran."""
        size = max(1, min(limit, LARGEST_PAGE))
        reach = self._tails.known_end
        extent = await self._ports.db.read(lambda conn: _load_extent(conn, job, attempt, offset, size, since, reach))
        if extent is None:
            over = await self._ports.db.read(lambda conn: _is_over(conn, job))
            return LogPage(attempt=0, attempts=0, start=0, next=0, complete=over, data=b"")
        start = extent.start
        data = await self._ports.calls.run(
            "store", lambda: self._store.read(extent.segments, start, size), READ_DEADLINE
        )
        if len(data) < size and start + len(data) >= extent.end and not extent.ended:
            data += self._tails.read(extent.id, start + len(data), size - len(data))
        following = start + len(data)
        complete = extent.ended and following >= extent.end
        return LogPage(
            attempt=extent.number, attempts=extent.attempts, start=start, next=following, complete=complete, data=data
        )


def to_segment(job: str, attempt: str, row: Row) -> Segment:
    """Return the segment of a row of `log_segments`."""
    keys = [log_segment_key(job, attempt, 0, row["n"], sha256) for sha256 in (row["sha256"], None)]
    key, other = keys if row["hashed"] else reversed(keys)
    return Segment(key, row["start"], row["end"], other)


def _is_over(conn: Connection, job: str) -> bool:
    state = _STATE.value(conn, of_job=job)
    return state is not None and JobState(state).terminal


def _load_extent(
    conn: Connection,
    job: str,
    number: int | None,
    offset: int,
    size: int,
    since: float | None,
    reach: Callable[[str, int], int],
) -> _Extent | None:
    rows = _ATTEMPTS.all(conn, of_job=job)
    if not rows:
        return None
    chosen = rows[-1] if number is None else next((row for row in rows if row["number"] == number), None)
    if chosen is None:
        raise NotFound(
            f"Job {short(job)} has no attempt {number}.",
            fix=f"It has {len(rows)}: crucible status {short(job)}",
        )
    attempt = chosen["id"]
    end = _END.value(conn, of_attempt=attempt) or 0
    ended = chosen["state"] == AttemptState.ENDED.value
    known = end if ended or since is not None else reach(attempt, end)
    start = _find_start(conn, attempt, offset, since, known)
    found = _WITHIN.all(conn, of_attempt=attempt, first=start, last=start + size)
    keys = tuple(to_segment(job, attempt, row) for row in found)
    return _Extent(attempt, chosen["number"], len(rows), ended, end, start, keys)


def _find_start(conn: Connection, attempt: str, offset: int, since: float | None, end: int) -> int:
    if since is not None:
        first = _SINCE.value(conn, of_attempt=attempt, since=since)
        return max(end if first is None else int(first), offset)
    return max(end + offset, 0) if offset < 0 else offset
