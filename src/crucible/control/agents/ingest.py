"""Turn a runner's messages into rows, events and facts, exactly once each and in order.

A batch is stored in one transaction with everything that follows from it: a job's last message settles the job and
hands its slots to the next job in the same commit. The acknowledgement is sent after that commit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from crucible import __version__
from crucible.control.agents.slots import load_slot
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.control.jobs import results
from crucible.control.objects import checkpoints, gc_marks, unannounced
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.ports import Ids
from crucible.control.telemetry import points
from crucible.control.telemetry.feed import Hint
from crucible.control.upkeep import restore_hold
from crucible.core.errors import Conflict
from crucible.core.lifecycle import Event, Fact, Reason, Step, World
from crucible.core.lifecycle import facts as f
from crucible.core.versions import agent_note
from crucible.storage.layout import checked_sha256, checkpoint_key, log_segment_key, output_key
from crucible.wire.documents.messages import Batch, Cause, Message, MessageKind
from crucible.wire.files.paths import safe_name

PROGRESS_NUMBERS = ("fraction", "epoch", "total_epochs", "step", "total_steps", "loss", "eta_seconds")
MAX_SERIES = 1000
"""Largest number of series of one rank; later ones of a program that invents names are ignored."""

LARGEST_NUMBER = 2**63
MOST_SEGMENTS = 2**31
"""Limit of the segment number: its column holds 32 bits."""
MOST_AHEAD = 10_000
"""How far the number of a log segment may be ahead of the last one that is stored."""


class Gap(Conflict):
    """A batch begins after a message that never arrived: the runner sends again from `acked` + 1."""

    code = "gap"

    def __init__(self, acked: int) -> None:
        super().__init__("Messages are missing before this batch.", fix=f"Send again from {acked + 1} on.", acked=acked)
        self.acked = acked


@dataclass(frozen=True)
class IngestResult:
    acked: int
    job: str


_REASONS = {
    Cause.SIGNAL: Reason.KILLED,
    Cause.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    Cause.TIME_LIMIT: Reason.TIME_LIMIT,
    Cause.STOPPED: Reason.CANCELLED,
    Cause.NOT_STARTED: Reason.CANCELLED,
    Cause.STAGING_FAILED: Reason.STAGING_FAILED,
    Cause.RUNNER_LOST: Reason.RUNNER_LOST,
    Cause.FENCED: Reason.FENCED,
    Cause.INTERRUPTED: Reason.INTERRUPTED,
    Cause.SUSPENDED: Reason.SUSPENDED,
}


_ACKNOWLEDGE = Statement(
    update(t.slots)
    .where(
        t.slots.c.attempt == bindparam("its_attempt"),
        t.slots.c.rank == bindparam("its_rank"),
        t.slots.c.acked == bindparam("before"),
    )
    .values(acked=bindparam("acked"))
)
_FACTS = Statement(select(t.attempts.c.facts).where(t.attempts.c.id == bindparam("attempt")))
_REMEMBER = Statement(
    update(t.attempts).where(t.attempts.c.id == bindparam("attempt")).values(facts=bindparam("facts"))
)
_s = t.log_segments.c
_OF_RANK = (_s.attempt == bindparam("attempt"), _s.rank == bindparam("rank"))
_SEGMENT = Statement(select(_s.n).where(*_OF_RANK, _s.n == bindparam("n")))
_LAST_SEGMENT = Statement(select(_s.n).where(*_OF_RANK).order_by(_s.n.desc()).limit(1))
_ADD_SEGMENT = Statement(
    insert_row(t.log_segments, ["attempt", "rank", "n", "start", "end", "lines", "sha256", "stored_at", "hashed"])
)
_a = t.artifacts.c
_ARTIFACT = Statement(select(_a.sha256).where(_a.attempt == bindparam("attempt"), _a.path == bindparam("path")))
_ADD_ARTIFACT = Statement(
    insert_row(t.artifacts, ["attempt", "path", "rank", "job", "size", "sha256", "stored_at", "hashed"])
)


class Ingest:
    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def store(self, unit: UnitOfWork, batch: Batch, *, contact: bool = True) -> IngestResult:
        """Store the new messages of a batch. Idempotent. Raises Gap, and AttemptGone for news of an ended runner.

        `contact`: the sender also receives from us, so the batch counts as a contact.
        """
        slot = load_slot(unit.conn, batch.attempt, batch.rank)
        fresh = [m for m in batch.messages if m.n > slot.acked]
        if fresh:
            # What was stored before is acknowledged again, so that no runner repeats it for ever.
            slot.require_open()
        if any(m.n != n for n, m in enumerate(fresh, start=slot.acked + 1)):
            bridged = restore_hold.bridge_gap(unit.conn, batch.attempt, batch.rank, fresh[0].n)
            if bridged is None:
                raise Gap(slot.acked)
            if not bridged:
                return IngestResult(slot.acked, slot.job)
        if fresh:
            self._apply_messages(unit, batch, slot.job, fresh, contact)
        return IngestResult(fresh[-1].n if fresh else slot.acked, slot.job)

    def _apply_messages(self, unit: UnitOfWork, batch: Batch, job: str, fresh: list[Message], contact: bool) -> None:
        world = repository.load_world(unit.conn, job)
        assert world is not None, "an attempt has a job"
        world = unit.advance(world, f.RunnerContacted(batch.attempt)) if contact else world
        for message in fresh:
            world = self._apply_message(unit, batch, world, message)
        self._acknowledge(unit, batch, fresh)

    def _acknowledge(self, unit: UnitOfWork, batch: Batch, fresh: list[Message]) -> None:
        """Acknowledge the messages; raise Stale if another batch of the rank was stored meanwhile."""
        # Compare and set from the number that was read: the same batch, sent twice at once, is stored once.
        mine = {"its_attempt": batch.attempt, "its_rank": batch.rank, "before": fresh[0].n - 1}
        if _ACKNOWLEDGE.run(unit.conn, **mine, acked=fresh[-1].n) != 1:
            raise repository.Stale("Another batch of this rank came meanwhile.", fix="Read again.")

    def _apply_message(self, unit: UnitOfWork, batch: Batch, world: World, message: Message) -> World:
        """Store one message.

        An unreadable one is noted instead of rejected: the runner could only send it again, forever.
        """
        try:
            fact = to_fact(batch, message)
            if fact is None:
                return self._store_record(unit, batch, world, message)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return add_note(unit, world, f"a {message.kind.value} message could not be read: {error}")
        self._store_facts(unit, batch, message)
        return _note_version_skew(unit, unit.advance(world, fact), message)

    def _store_record(self, unit: UnitOfWork, batch: Batch, world: World, message: Message) -> World:
        match message.kind:
            case MessageKind.POINTS:
                _store_points(unit, batch, message)
                unit.changes.hint(world.job.id, Hint.POINTS)
            case MessageKind.PROGRESS:
                where = t.attempts.c.id == batch.attempt
                told = json.dumps(parse_progress(message.data))
                unit.conn.execute(update(t.attempts).where(where).values(progress=told))
                unit.changes.hint(world.job.id, Hint.PROGRESS)
            case MessageKind.LOG:
                _store_segment(unit, batch, world.job.id, message)
                unit.changes.hint(world.job.id, Hint.LOG)
            case MessageKind.ARTIFACT:
                _store_artifact(unit, batch, world.job.id, message)
            case MessageKind.CHECKPOINT:
                return self._store_checkpoint(unit, batch, world, message)
            case MessageKind.RESULT:
                results.store(unit.conn, world.job.id, batch.attempt, message.data, unit.now)
            case _:
                return add_note(unit, world, str(message.data.get("text", ""))[:2000])
        return world

    def _store_checkpoint(self, unit: UnitOfWork, batch: Batch, world: World, message: Message) -> World:
        """Add the checkpoint's row, which protects its object from now on, and clear the mark that did so far."""
        world = checkpoints.add_checkpoint(unit, self._ids, world, batch.attempt, batch.rank, message.data)
        key = checkpoint_key(world.job.id, str(message.data["sha256"]))
        unannounced.announce(unit.conn, batch.attempt, key)
        gc_marks.clear_arriving(unit.conn, key, f"{batch.attempt}:{batch.rank}")
        return world

    def _store_facts(self, unit: UnitOfWork, batch: Batch, message: Message) -> None:
        """Keep what the runner reported, for users: limits, interpreter, peak memory, outputs that were not stored."""
        lacks_outputs = message.kind is MessageKind.ENDED and not message.data.get("complete", True)
        if message.kind not in (MessageKind.STARTED, MessageKind.EXITED) and not lacks_outputs:
            return
        known = _FACTS.value(unit.conn, attempt=batch.attempt) or "{}"
        merged = {**json.loads(known), message.kind.value: dict(message.data)}
        _REMEMBER.run(unit.conn, attempt=batch.attempt, facts=json.dumps(merged))


def _note_version_skew(unit: UnitOfWork, world: World, message: Message) -> World:
    """Note on the job if its agent has another version: agents outlive servers."""
    agent = message.data.get("agent") if message.kind is MessageKind.STARTED else None
    text = agent_note(str(agent), __version__) if agent else None
    return add_note(unit, world, text) if text else world


def add_note(unit: UnitOfWork, world: World, text: str) -> World:
    """Add a note for users to the job's events."""
    return unit.save(world, Step(world, (Event("note", {"text": text}),)))


def to_fact(batch: Batch, message: Message) -> Fact | None:
    """Return the lifecycle fact of a message; None if it has none."""
    data = message.data
    match message.kind:
        case MessageKind.STAGING:
            return f.RunnerStaging(batch.attempt, str(data.get("what", ""))[:500])
        case MessageKind.STARTED:
            return f.RunnerStarted(batch.attempt, batch.rank, _parse_int(data.get("pid")))
        case MessageKind.EXITED:
            return f.RunnerExited(
                batch.attempt,
                batch.rank,
                parse_reason(data),
                _parse_int(data.get("code")),
                _parse_int(data.get("signal")),
                _clean_text(data.get("text"), 4000),
            )
        case MessageKind.NOTICE:
            return f.InterruptionNoticed(batch.attempt, float(_parse_number(data.get("seconds")) or 0.0))
        case MessageKind.ENDED:
            complete = bool(data.get("complete", True))
            return f.RunnerEnded(batch.attempt, batch.rank, complete, _clean_text(data.get("text"), 2000))
        case _:
            return None


def parse_progress(data: Mapping[str, object]) -> dict[str, object]:
    """Return the known fields of a progress message, each a finite number or a short text."""
    numbers = {name: _parse_number(data.get(name)) for name in PROGRESS_NUMBERS}
    message = data.get("message")
    return {**numbers, "message": message[:200] if isinstance(message, str) else None}


def _parse_number(value: object) -> float | int | None:
    """Return the number; None for text, infinities and numbers that do not fit 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < LARGEST_NUMBER else None


def parse_reason(data: Mapping[str, object]) -> Reason:
    cause = Cause(str(data.get("cause", Cause.EXIT.value)))
    if cause is Cause.EXIT:
        return Reason.COMPLETED if data.get("code") == 0 else Reason.EXIT_CODE
    return _REASONS[cause]


def _store_points(unit: UnitOfWork, batch: Batch, message: Message) -> None:
    series = message.data.get("series")
    if not isinstance(series, dict):
        return
    known = points.series_names(unit.conn, batch.attempt, batch.rank)
    for name, raw in series.items():
        label, found = _clean_text(name, 200), list(_parse_points(raw))
        if found and (label in known or len(known) < MAX_SERIES):
            points.append_points(unit.conn, batch.attempt, batch.rank, label, found)
            known.add(label)


def _parse_points(raw: object) -> Iterable[points.Point]:
    for item in raw if isinstance(raw, list) else ():
        try:
            step, value, at = item
            yield points.Point(float(step), math.nan if value is None else float(value), float(at))
        except (TypeError, ValueError, OverflowError):
            continue


def has_segment(conn: Connection, attempt: str, rank: int, n: int) -> bool:
    """Return whether the segment is recorded. Raises ValueError for a number too far after the last one."""
    if _SEGMENT.value(conn, attempt=attempt, rank=rank, n=n) is not None:
        return True
    last = _LAST_SEGMENT.value(conn, attempt=attempt, rank=rank) or 0
    if n > last + MOST_AHEAD and not restore_hold.may_have_missed(conn, attempt, rank):
        raise ValueError(f"segment {n} is too far after segment {last}, the last one that is stored")
    return False


def recorded_artifact(conn: Connection, attempt: str, path: str) -> str | None:
    """Return the hash of the attempt's artifact; None while none is recorded under this path."""
    known: str | None = _ARTIFACT.value(conn, attempt=attempt, path=path)
    return known


def _store_segment(unit: UnitOfWork, batch: Batch, job: str, message: Message) -> None:
    data = message.data
    start, end = _parse_count(data["start"]), _parse_count(data["end"])
    if end < start:
        raise ValueError("a segment ends before it starts")
    n, sha256 = _parse_segment_number(data["n"]), checked_sha256(str(data["sha256"]))
    if has_segment(unit.conn, batch.attempt, batch.rank, n):
        return
    row = {
        "attempt": batch.attempt,
        "rank": batch.rank,
        "n": n,
        "start": start,
        "end": end,
        "lines": _parse_count(data.get("lines", 0)),
        "sha256": sha256,
        "stored_at": unit.now,
    }
    key = log_segment_key(job, batch.attempt, batch.rank, n, sha256)
    _ADD_SEGMENT.run(unit.conn, **row, hashed=_announce(unit, batch, key))


def _store_artifact(unit: UnitOfWork, batch: Batch, job: str, message: Message) -> None:
    """Record an artifact. Raises ValueError if another content is recorded under its path, which stays."""
    path, sha256 = safe_name(str(message.data["path"])), checked_sha256(str(message.data["sha256"]))
    size = _parse_count(message.data["size"])
    known = recorded_artifact(unit.conn, batch.attempt, path)
    if known is not None and known != sha256:
        raise ValueError(f"{path[:200]!r} is stored already, with other content")
    if known is None:
        row = {"attempt": batch.attempt, "path": path, "rank": batch.rank, "job": job, "size": size, "sha256": sha256}
        stored = _announce(unit, batch, output_key(job, batch.attempt, sha256), path)
        _ADD_ARTIFACT.run(unit.conn, **row, stored_at=unit.now, hashed=stored)


def _announce(unit: UnitOfWork, batch: Batch, key: str, path: str = "") -> bool:
    """Drop an object that is being recorded; return whether its name is `key`, and not one of version 0.1.0.

    A restored database may lack the rows of what was stored since its backup: most of that is under today's names.
    """
    stored = unannounced.announce(unit.conn, batch.attempt, key, path)
    return stored or restore_hold.may_have_missed(unit.conn, batch.attempt, batch.rank)


def _clean_text(value: object, longest: int) -> str:
    """Return text that every database can hold: NUL and lone surrogates are replaced."""
    return str(value or "")[:longest].replace("\0", "\ufffd").encode(errors="replace").decode()


def _parse_int(value: object) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if not abs(value) < LARGEST_NUMBER:
        raise ValueError("a number is out of bounds")
    return int(value)


def _parse_count(value: object) -> int:
    whole = _parse_int(value)
    if whole is None or whole < 0:
        raise ValueError(f"{value!r} is no count")
    return whole


def _parse_segment_number(value: object) -> int:
    n = _parse_count(value)
    if n >= MOST_SEGMENTS:
        raise ValueError(f"there is no segment {n}")
    return n
