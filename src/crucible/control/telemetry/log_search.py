"""Search a job's output: the stored segments of all attempts, then the live tail.

Runs in a thread, with a deadline of its own: it returns what it has found by then, and a cursor to continue from.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.runtime.ports import Ports
from crucible.control.telemetry.grep import LineMatch, Pattern, TextBlock, lines_of, search
from crucible.control.telemetry.logs import to_segment
from crucible.control.telemetry.tails import KEEP_BYTES, OutputTails
from crucible.core.errors import BadInput, NotFound
from crucible.core.ids import short
from crucible.core.lifecycle import AttemptState
from crucible.core.views.search import HitPage, HitView, SearchedView
from crucible.storage import LogStore, Segment

SECONDS = 8.0
"""How long one request searches before it answers with what it has."""
WAITING_SECONDS = 20.0
"""How long it may wait for a free thread first."""
BLOCK = 4 * 1024 * 1024
LEAD = 64 * 1024
"""Bytes before a cursor that are searched for the context of the first hit."""

_CURSOR = re.compile(r"l1:([0-9]{1,7}):([0-9]{1,16}):([0-9]{1,16})")
_a, _s = t.attempts.c, t.log_segments.c
_ATTEMPTS = Statement(select(_a.id, _a.number, _a.state).where(_a.job == bindparam("job")).order_by(_a.number))
_SEGMENTS = Statement(
    select(_s.n, _s.start, _s.end, _s.sha256, _s.hashed)
    .where(_s.attempt == bindparam("attempt"), _s.rank == 0, _s.end > bindparam("offset"))
    .order_by(_s.start)
)


@dataclass(frozen=True)
class Query:
    """What to search for and where: all attempts (default) or one, with `context` lines around each hit."""

    pattern: Pattern
    attempt: int | None = None
    context: int = 0
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True)
class _Position:
    """The next line to look at."""

    attempt: int = 0
    line: int = 1
    offset: int = 0


@dataclass(frozen=True)
class _AttemptOutput:
    """An attempt's output from a position on. `tail` follows the segments and is in this process's memory only."""

    attempt: int
    spot: _Position
    segments: tuple[Segment, ...]
    tail: bytes
    ended: bool


@dataclass(frozen=True)
class _SearchResult:
    hits: list[tuple[int, LineMatch]]
    lines: int
    bytes: int
    next: _Position | None


class LogSearch:
    def __init__(self, ports: Ports, tails: OutputTails) -> None:
        self._ports = ports
        self._tails = tails
        self._store = LogStore(ports.store)

    async def find(self, job: str, query: Query) -> HitPage:
        """Return a page of hits in the order of the output. Cancelling this call ends the search too."""
        spot = read_cursor(query.cursor)
        outputs = await self._ports.db.read(lambda conn: self._load_outputs(conn, job, query.attempt, spot))
        gone = threading.Event()
        until: list[float] = []

        def over() -> bool:
            return gone.is_set() or self._ports.clock.now() > until[0]

        def work() -> _SearchResult:
            until.append(self._ports.clock.now() + SECONDS)  # waiting for a thread does not count
            return self._search(outputs, query, over)

        try:
            found = await self._ports.calls.run("search", work, SECONDS + WAITING_SECONDS)
        finally:
            gone.set()
        return _view(found, complete=found.next is None and all(output.ended for output in outputs))

    def _search(self, outputs: list[_AttemptOutput], query: Query, over: Callable[[], bool]) -> _SearchResult:
        hits: list[tuple[int, LineMatch]] = []
        lines = size = 0
        for output in outputs:
            for block, found in self._search_output(output, query):
                hits += [(output.attempt, hit) for hit in found]
                if len(hits) > query.limit:
                    attempt, hit = hits[query.limit]
                    return _SearchResult(hits[: query.limit], lines, size, _Position(attempt, hit.line, hit.offset))
                lines, size = lines + block.newlines, size + len(block.data)
                if over():
                    spot = _Position(output.attempt, block.line + block.newlines, block.offset + len(block.data))
                    return _SearchResult(hits, lines, size, spot)
        return _SearchResult(hits, lines, size, None)

    def _search_output(self, output: _AttemptOutput, query: Query) -> Iterator[tuple[TextBlock, list[LineMatch]]]:
        earlier: list[bytes] = []
        if query.context and output.spot.offset:
            start = max(output.spot.offset - LEAD, output.segments[0].start if output.segments else 0)
            led = self._store.read(output.segments, start, output.spot.offset - start)
            earlier = lines_of(led, -query.context)
        return search(
            self._read_blocks(output), query.pattern, most=query.limit + 1, context=query.context, earlier=earlier
        )

    def _read_blocks(self, output: _AttemptOutput) -> Iterator[TextBlock]:
        line = output.spot.line
        for offset, data in self._store.blocks(output.segments, output.spot.offset, BLOCK, tail=output.tail):
            block = TextBlock(offset, line, data)
            line += block.newlines
            yield block

    def _load_outputs(self, conn: Connection, job: str, attempt: int | None, spot: _Position) -> list[_AttemptOutput]:
        rows = _ATTEMPTS.all(conn, job=job)
        if attempt is not None and all(row["number"] != attempt for row in rows):
            raise NotFound(
                f"Job {short(job)} has no attempt {attempt}.", fix=f"It has {len(rows)}: crucible status {short(job)}"
            )
        wanted = [row for row in rows if row["number"] >= spot.attempt and attempt in (None, row["number"])]
        return [
            self._load_output(conn, job, row, spot if row["number"] == spot.attempt else _Position()) for row in wanted
        ]

    def _load_output(self, conn: Connection, job: str, row: Row, spot: _Position) -> _AttemptOutput:
        found = _SEGMENTS.all(conn, attempt=row["id"], offset=max(spot.offset - LEAD, 0))
        segments = tuple(to_segment(job, row["id"], segment) for segment in found)
        ended = row["state"] == AttemptState.ENDED.value
        end = max(segments[-1].end if segments else 0, spot.offset)
        tail = b"" if ended else self._tails.read(row["id"], end, KEEP_BYTES)
        return _AttemptOutput(row["number"], spot, segments, tail, ended)


def write_cursor(spot: _Position) -> str:
    text = f"l1:{spot.attempt}:{spot.line}:{spot.offset}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> _Position:
    """Return where a page ended. Raises BadInput for an invalid cursor."""
    if cursor is None:
        return _Position()
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise BadInput(
            "The cursor is not valid.",
            fix="Take it unchanged from `next` of the page before, or leave it out to begin at the first line.",
            field="cursor",
        )
    return _Position(*map(int, found.groups()))


def _view(found: _SearchResult, *, complete: bool) -> HitPage:
    return HitPage(
        items=tuple(_hit_view(attempt, hit) for attempt, hit in found.hits),
        next=None if found.next is None else write_cursor(found.next),
        complete=complete,
        searched=SearchedView(lines=found.lines, bytes=found.bytes),
    )


def _hit_view(attempt: int, hit: LineMatch) -> HitView:
    return HitView(
        attempt=attempt,
        line=hit.line,
        offset=hit.offset,
        column=hit.column,
        text=hit.text,
        cut=hit.cut,
        before=hit.before,
        after=hit.after,
    )
