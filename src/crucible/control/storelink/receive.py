"""Store the batches that a runner left in its mailbox, as if they had come over HTTPS.

What a message announces is stored before the message itself, so after a crash the same simply happens again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog
from sqlalchemy import Select, select

from crucible.control.agents.agents import Agents
from crucible.control.agents.ingest import Gap
from crucible.control.agents.slots import AttemptGone
from crucible.control.db import schema as t
from crucible.control.runtime.ports import Ports
from crucible.control.storelink.mailboxes import Mailboxes
from crucible.core.errors import BadInput, Conflict, CrucibleError
from crucible.storage import HashMismatch, NotFound
from crucible.storage.layout import checked_sha256
from crucible.wire.documents.mailbox import artifact_blob, checkpoint_blob, is_segment, log_blob, runner_party
from crucible.wire.documents.messages import (
    MAX_BATCH_BYTES,
    BadBatch,
    Batch,
    Message,
    MessageKind,
    decode_batch,
    encode_batch,
)
from crucible.wire.files.paths import UnsafePath, safe_name

log = structlog.get_logger(__name__)

SEGMENTS_A_ROUND = 64
BYTES_A_ROUND = 32 * 1024 * 1024
MAX_FOREIGN = 1000
WAIT_SECONDS = 2.0
"""How long a round waits for one runner."""
LOST_SECONDS = 60.0
"""How long a message waits for what it announces; after that it is noted as lost."""


@dataclass(frozen=True)
class MailboxRunner:
    """The runner of a mailbox. `deaf`: it cannot read what we write, so its batches count as no contact.

    `ended`: the attempt is over.
    """

    machine: str
    attempt: str
    rank: int
    secret: bytes = field(repr=False)
    deaf: bool = False
    ended: bool = False

    @property
    def party(self) -> str:
        return runner_party(self.attempt, self.rank)


@dataclass(frozen=True)
class Received:
    """`acked`: the highest number stored. `done` may be deleted, in this order, once the runner knows `acked`.

    `more`: not everything was stored yet.
    """

    acked: int
    done: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class _Segment:
    name: str
    raw: bytes = field(repr=False)
    batch: Batch = field(repr=False)

    @property
    def first(self) -> int:
        return self.batch.messages[0].n

    @property
    def last(self) -> int:
        return self.batch.messages[-1].n

    def names(self, party: str) -> list[str]:
        """Return the objects to delete once this is stored, the batch last: while it is there, its blobs are found."""
        return [*(blob for blob, _ in _list_blobs(party, self.batch.messages)), self.name]


class _NotThere(Exception):
    """A blob that a message announces is missing and may still arrive."""


class BatchReceiver:
    def __init__(self, ports: Ports, agents: Agents, mailboxes: Mailboxes) -> None:
        self._ports = ports
        self._agents = agents
        self._mailboxes = mailboxes
        self._foreign: dict[tuple[str, str], None] = {}
        self._missing: dict[tuple[str, str], float] = {}
        self._running: dict[tuple[str, str], asyncio.Task[Received]] = {}

    async def receive(self, runner: MailboxRunner, names: Mapping[str, int], acked: int) -> Received | None:
        """Store what the runner left and return how far that got; None while it is still running (a large output).

        Each call waits a little; the first call after the end returns the result.
        """
        key = (runner.machine, runner.party)
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._receive(runner, names, acked))
        done, _ = await asyncio.wait({self._running[key]}, timeout=WAIT_SECONDS)
        return self._running.pop(key).result() if done else None

    def is_receiving(self, machine: str) -> bool:
        return any(key[0] == machine for key in self._running)

    async def stop(self) -> None:
        """Cancel what is running: it is stored again after the next start."""
        going = tuple(self._running.values())
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        self._running.clear()

    async def _receive(self, runner: MailboxRunner, names: Mapping[str, int], acked: int) -> Received:
        """Store what is there, in order, up to the first missing number."""
        done: list[str] = []
        segments, more = await self._read_segments(runner, names)
        if runner.ended:
            # Nothing more is stored for it: its mail is dropped.
            done = [name for segment in segments for name in segment.names(runner.party)]
            return Received(acked, tuple(done), more or bool(done))
        for segment in segments:
            if segment.first > acked + 1:
                if not await self._agents.bridge(runner.attempt, runner.rank, segment.first):
                    break
                acked = segment.first - 1
            try:
                if segment.last > acked:
                    acked = await self._store(runner, segment, acked)
            except (Gap, AttemptGone):
                break
            except _NotThere:
                more = True
                break
            done += segment.names(runner.party)
        return Received(acked, tuple(done), more or bool(done))

    async def _read_segments(self, runner: MailboxRunner, names: Mapping[str, int]) -> tuple[list[_Segment], bool]:
        """Return the segments that carry the runner's signature, in order, and whether some were left for later."""
        found, size = list[_Segment](), 0
        prefix = f"parties/{runner.party}/up/"
        mine = sorted(n for n in names if n.startswith(prefix) and is_segment(n) and not self._is_foreign(runner, n))
        for number, name in enumerate(mine):
            if number >= SEGMENTS_A_ROUND or size > BYTES_A_ROUND:
                return _in_order(found), True
            raw = await self._mailboxes.get(runner.machine, name, MAX_BATCH_BYTES)
            segment = None if raw is None else _parse_segment(runner, name, raw)
            if segment is None:
                self._remember_foreign(runner, name)
                continue
            size += len(segment.raw)
            found.append(segment)
        return _in_order(found), False

    def _is_foreign(self, runner: MailboxRunner, name: str) -> bool:
        return (runner.machine, name) in self._foreign

    def _remember_foreign(self, runner: MailboxRunner, name: str) -> None:
        """Never read this object again, nor delete it: it is not ours."""
        log.warning("an object in a mailbox is not its runner's", machine=runner.machine, name=name)
        self._foreign[runner.machine, name] = None
        if len(self._foreign) > MAX_FOREIGN:
            del self._foreign[next(iter(self._foreign))]

    async def _store(self, runner: MailboxRunner, segment: _Segment, acked: int) -> int:
        lost = {}
        for message in segment.batch.messages:
            why = await self._store_blob(runner, message) if message.n > acked else ""
            if why:
                lost[message.n] = why
        raw = segment.raw if not lost else _replace_lost(segment.batch, lost, runner.secret)
        return await self._agents.ingest(runner.attempt, runner.rank, raw, contact=not runner.deaf)

    async def _store_blob(self, runner: MailboxRunner, message: Message) -> str:
        """Store what the message announces; return why it is lost, or an empty string. Raises _NotThere."""
        for blob, _ in _list_blobs(runner.party, (message,)):
            try:
                await self._copy(runner, message, blob)
            except (NotFound, HashMismatch) as error:
                if not await self._is_stored(runner, message):
                    return self._give_up(runner, blob, error)
            except (BadInput, Conflict, UnsafePath) as error:
                return str(error)
            self._missing.pop((runner.machine, blob), None)
        return ""

    async def _copy(self, runner: MailboxRunner, message: Message, blob: str) -> None:
        data, sha256 = message.data, str(message.data["sha256"])
        content = self._mailboxes.read_chunks(runner.machine, blob)
        if message.kind is MessageKind.ARTIFACT:
            path = safe_name(str(data["path"]))
            await self._agents.put_artifact(runner.attempt, runner.rank, path, sha256, content, announced=True)
        elif message.kind is MessageKind.CHECKPOINT:
            await self._agents.put_checkpoint(runner.attempt, runner.rank, sha256, content, announced=True)
        else:
            n, start, lines = (int(str(data.get(name, 0))) for name in ("n", "start", "lines"))
            whole = await _read_all(content, MAX_BATCH_BYTES)
            rank, contact = runner.rank, not runner.deaf
            await self._agents.put_log(
                runner.attempt, rank, n, start, lines, sha256, whole, contact=contact, announced=True
            )

    async def _is_stored(self, runner: MailboxRunner, message: Message) -> bool:
        query = _stored_row(runner, message)
        return await self._ports.db.read(lambda conn: conn.execute(query).first()) is not None

    def _give_up(self, runner: MailboxRunner, blob: str, error: CrucibleError) -> str:
        now = self._ports.clock.now()
        since = self._missing.setdefault((runner.machine, blob), now)
        if now - since < LOST_SECONDS:
            raise _NotThere(blob)
        log.warning("what a runner stored is lost", machine=runner.machine, name=blob, why=str(error))
        del self._missing[runner.machine, blob]
        return "it was lost in the store, or changed there"


def _parse_segment(runner: MailboxRunner, name: str, raw: bytes) -> _Segment | None:
    try:
        batch = decode_batch(raw, runner.secret)
    except BadBatch:
        return None
    if (batch.attempt, batch.rank) != (runner.attempt, runner.rank) or not batch.messages:
        return None
    return _Segment(name, raw, batch)


def _in_order(segments: list[_Segment]) -> list[_Segment]:
    return sorted(segments, key=lambda segment: (segment.first, segment.last))


def _list_blobs(party: str, messages: Iterable[Message]) -> list[tuple[str, Message]]:
    """Return the blobs that messages announce. An unreadable message has none; ingest notes it."""
    found = []
    for message in messages:
        try:
            name = _blob_name(party, message)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if name is not None:
            found.append((name, message))
    return found


def _blob_name(party: str, message: Message) -> str | None:
    if message.kind not in (MessageKind.LOG, MessageKind.ARTIFACT, MessageKind.CHECKPOINT):
        return None
    data, sha256 = message.data, checked_sha256(str(message.data["sha256"]))
    if message.kind is MessageKind.LOG:
        n, start, lines = (int(str(data[name])) for name in ("n", "start", "lines"))
        return log_blob(party, n, sha256) if min(n, start, lines) >= 0 else None
    if message.kind is MessageKind.ARTIFACT:
        return artifact_blob(party, safe_name(str(data["path"])), sha256)
    return checkpoint_blob(party, sha256)


def _stored_row(runner: MailboxRunner, message: Message) -> Select[tuple[str]]:
    """Return the query for the row that shows that this was stored before."""
    data, sha256 = message.data, str(message.data["sha256"])
    if message.kind is MessageKind.ARTIFACT:
        a = t.artifacts.c
        return select(a.sha256).where(a.attempt == runner.attempt, a.path == str(data["path"]), a.sha256 == sha256)
    if message.kind is MessageKind.CHECKPOINT:
        c = t.checkpoints.c
        return select(c.sha256).where(c.attempt == runner.attempt, c.sha256 == sha256, c.pruned_at.is_(None))
    s = t.log_segments.c
    mine = (s.attempt == runner.attempt, s.rank == runner.rank, s.n == int(str(data["n"])), s.sha256 == sha256)
    return select(s.sha256).where(*mine)


def _replace_lost(batch: Batch, lost: Mapping[int, str], secret: bytes) -> bytes:
    """Return the batch with a note for each message whose content is lost: no number may be missing."""
    messages = (_lost_note(m, lost[m.n]) if m.n in lost else m for m in batch.messages)
    return encode_batch(Batch(batch.attempt, batch.rank, tuple(messages)), secret)


def _lost_note(message: Message, why: str) -> Message:
    what = message.data.get("path") or message.data.get("name") or f"output segment {message.data.get('n')}"
    return replace(message, kind=MessageKind.NOTE, data={"text": f"{what!s:.200} is not kept: {why:.500}"})


async def _read_all(content: AsyncIterator[bytes], limit: int) -> bytes:
    parts, size = [], 0
    async for part in content:
        parts.append(part)
        size += len(part)
        if size > limit:
            raise HashMismatch("A log segment is larger than any.")
    return b"".join(parts)
