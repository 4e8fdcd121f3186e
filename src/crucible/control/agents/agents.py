"""What hosts and runners ask of the control plane."""

from __future__ import annotations

import hmac
import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from sqlalchemy import bindparam, or_, select

from crucible.control.agents import desired
from crucible.control.agents.contacts import Contacts
from crucible.control.agents.ingest import SEGMENT, AttemptGone, Ingest, add_note
from crucible.control.agents.sessions import AgentSession, Sessions
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.objects import gc_marks
from crucible.control.objects.bundles import Bundles, StoredFile
from crucible.control.objects.uploads import LANE, PUT_DEADLINE, Uploads
from crucible.control.reconcile import repository
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.secrets import Vault
from crucible.control.telemetry.feed import Feed, Hint
from crucible.control.telemetry.tails import OutputTails
from crucible.control.upkeep import restore_hold
from crucible.core.errors import BadInput, Conflict, CrucibleError, NotAllowed, NotFound
from crucible.core.lifecycle import Machine, MachineState
from crucible.core.lifecycle.facts import HostSeen, RunnerContacted
from crucible.core.views.agents import DesiredAttemptView, SessionCallView
from crucible.storage import Store
from crucible.storage.layout import artifact_key, checkpoint_key, log_segment_key
from crucible.wire.documents.desired import Desired
from crucible.wire.documents.messages import BadBatch, decode_batch, derive_secret

NONCE_SECONDS = 30 * 60
JOB_CACHE_SIZE = 10_000
"""Attempts whose job is cached, to save a query per message."""
LONGEST_WAIT = 30.0
LARGEST_ARTIFACT = 1024**4
LARGEST_CHECKPOINT = 1024**4


_MACHINE_OF = Statement(select(t.slots.c.machine).where(t.slots.c.attempt == bindparam("attempt")).limit(1))
_JOB_OF = Statement(select(t.attempts.c.job).where(t.attempts.c.id == bindparam("attempt")))


class MachineUnwanted(CrucibleError):
    """The machine is no longer wanted: its host ends when nothing runs."""

    code = "machine_unwanted"
    http_status = 410


_OWN_BATCH = "Send the bytes of encode_batch, signed with the attempt's own secret."


class UnreadableBatch(BadInput):
    code = "bad_batch"
    http_status = 400


@dataclass(frozen=True)
class AgentServices:
    """What `Agents` needs of the control plane."""

    ports: Ports
    writer: Writer
    feed: Feed
    tails: OutputTails
    contacts: Contacts
    key: bytes = field(repr=False)
    vault: Vault
    sessions: Sessions


class Agents:
    def __init__(self, services: AgentServices, ingest: Ingest, uploads: Uploads, bundles: Bundles) -> None:
        self._services = services
        self._ingest = ingest
        self._uploads = uploads
        self._bundles = bundles
        self._jobs: dict[str, str] = {}
        self._upload_numbers = itertools.count()

    async def start(self) -> None:
        """Release the uploads of an earlier process of this name; call it before agents are served."""
        ports = self._services.ports
        await ports.db.write(lambda conn: gc_marks.release_uploads(conn, ports.worker))

    @property
    def store(self) -> Store:
        return self._services.ports.store

    def check_machine(self, machine: str, bearer: str) -> None:
        self._check_secret("machine", machine, bearer)

    def check_attempt(self, attempt: str, bearer: str) -> None:
        self._check_secret("attempt", attempt, bearer)

    def _check_secret(self, purpose: str, name: str, bearer: str) -> None:
        """Raise NotAllowed unless the bearer is this machine's or attempt's own secret."""
        secret = derive_secret(self._services.key, purpose, name)
        if not hmac.compare_digest(secret, bearer.encode(errors="replace")):
            raise NotAllowed(f"This is not the secret of that {purpose}.", fix="Agents take it from their launch.")

    async def claim(self, machine: str, nonce: str, native_id: str) -> str:
        """Return the machine's secret to the first host that claims it; raise Conflict for every other."""
        self._check_secret("nonce", machine, nonce)
        await self._services.writer.write(lambda unit: _claim(unit, machine, native_id))
        crashpoint("claim.after_commit")
        return derive_secret(self._services.key, "machine", machine).decode()

    async def desired(
        self, machine: str, version: int, wait: float, devices: Mapping[str, object] | None = None
    ) -> Desired | None:
        """Return the machine's document once it differs from `version`; None if it does not within `wait` seconds.

        `devices` is what the host found on its machine; nothing needs it yet.
        """
        await self._record_host(machine)
        # Listen before reading, so that no change between the two is missed.
        with self._services.ports.wakeups.listening(f"machine:{machine}") as listener:
            document = await self._load_desired(machine)
            if document.version == version and wait > 0:
                await listener.wait(min(wait, LONGEST_WAIT))
                document = await self._load_desired(machine)
        crashpoint("desired.before_answer")
        return document if document.version != version else None

    async def read_desired(self, machine: str) -> Desired:
        """Return the machine's document without recording a contact. Raises MachineUnwanted."""
        return await self._load_desired(machine)

    async def attempt_desired(
        self,
        attempt: str,
        rank: int,
        stop: bool,
        checkpoint: int,
        wait: float,
        sessions: Collection[str] | None = None,
    ) -> DesiredAttemptView | None:
        """Return what is wanted of one attempt once it differs from what its runner knows; None if it does not.

        `sessions`: those that the runner knows; None if its version has no sessions.
        """
        machine = await self._machine_of(attempt)
        with self._services.ports.wakeups.listening(f"machine:{machine}") as listener:
            known = DesiredAttemptView(stop=stop, settled=False, checkpoint=checkpoint)
            wishes = await self._record_and_read(attempt)
            called = self._pending_calls(attempt, rank, sessions)
            if wishes == known and not called and wait > 0:
                await listener.wait(min(wait, LONGEST_WAIT))
                wishes = await self._record_and_read(attempt)
                called = self._pending_calls(attempt, rank, sessions)
        if called:
            return wishes.model_copy(update={"sessions": tuple(called)})
        return wishes if wishes != known else None

    def _pending_calls(self, attempt: str, rank: int, known: Collection[str] | None) -> list[SessionCallView]:
        """Return the sessions that the runner is to dial, if one of them is new to it."""
        called = self._services.sessions.pending_calls(attempt) if rank == 0 and known is not None else []
        return called if any(session.id not in (known or ()) for session in called) else []

    def accept_session(self, attempt: str, session: str) -> AbstractContextManager[AgentSession]:
        """Return the session that the attempt's runner dialled, as a context. Raises NotFound."""
        return self._services.sessions.accept(attempt, session)

    async def secrets(self, attempt: str) -> dict[str, str]:
        """Return the attempt's secret variables in the clear, for its runner alone.

        Raises NotFound if a secret no longer exists, AttemptGone once the attempt is over.
        """
        await self._job_of(attempt)
        vault = self._services.vault
        found = await self._services.ports.db.read(lambda conn: vault.values_of_attempt(conn, attempt))
        if found is None:
            raise AttemptGone("The attempt is over.", fix="The runner ends itself.")
        return {variable: value.reveal() for variable, value in found.items()}

    async def ingest(self, attempt: str, rank: int, raw: bytes, *, contact: bool = True) -> int:
        """Store a batch; return the highest number stored, once durable. `contact`: it counts as a contact."""
        try:
            batch = decode_batch(raw, derive_secret(self._services.key, "attempt", attempt))
        except BadBatch as error:
            raise UnreadableBatch("The batch cannot be read.", why=str(error), fix=_OWN_BATCH) from error
        if (batch.attempt, batch.rank) != (attempt, rank):
            raise UnreadableBatch("The batch is of another attempt.", fix=_OWN_BATCH)

        def store(unit: UnitOfWork) -> tuple[int, str]:
            done = self._ingest.store(unit, batch, contact=contact)
            crashpoint("ingest.before_commit")
            return done.acked, done.job

        acked, job = await self._services.writer.write(store)
        self._remember(attempt, job)
        crashpoint("ingest.after_commit")
        return acked

    async def record_contact(self, attempt: str) -> None:
        """Record a contact of the attempt that its runner did not make itself."""
        job = await self._job_of(attempt)

        def tell(unit: UnitOfWork) -> None:
            world = repository.load_world(unit.conn, job)
            assert world is not None, "an attempt has a job"
            unit.advance(world, RunnerContacted(attempt))

        await self._services.writer.write(tell)

    async def add_note(self, attempt: str, text: str) -> None:
        """Add a note for users to the events of the attempt's job."""
        job = await self._job_of(attempt)

        def tell(unit: UnitOfWork) -> None:
            world = repository.load_world(unit.conn, job)
            assert world is not None, "an attempt has a job"
            add_note(unit, world, text)

        await self._services.writer.write(tell)

    async def bridge(self, attempt: str, rank: int, first: int) -> bool:
        """Return whether all messages before `first` are given up: the runner lost them before a restore."""
        return bool(
            await self._services.ports.db.write(lambda conn: restore_hold.bridge_gap(conn, attempt, rank, first))
        )

    async def put_log(
        self, attempt: str, rank: int, n: int, start: int, lines: int, sha256: str, data: bytes, *, contact: bool = True
    ) -> None:
        """Store a segment. It counts once its LOG message has come; from then on it never changes."""
        job = await self._job_of(attempt)
        if not await self._is_announced(attempt, rank, n):
            key, store = log_segment_key(job, attempt, rank, n), self._services.ports.store
            await self._services.ports.calls.run(LANE, lambda: store.put(key, data, sha256=sha256), PUT_DEADLINE)
            crashpoint("log.after_put")
        self.put_tail(attempt, rank, start, data, contact=contact)

    def put_tail(self, attempt: str, rank: int, start: int, data: bytes, *, contact: bool = True) -> None:
        """Keep the newest output in memory, for users who follow it."""
        if rank:
            return
        self._services.tails.add(attempt, start, data)
        if contact:
            self._services.contacts.record_attempt(attempt, self._services.ports.clock.now())
        if attempt in self._jobs:
            self._services.feed.publish(self._jobs[attempt], {Hint.LOG})

    async def put_artifact(self, attempt: str, rank: int, path: str, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        job = await self._job_of(attempt)
        await self._uploads.put_object(artifact_key(job, attempt, path), sha256, chunks, LARGEST_ARTIFACT)
        crashpoint("artifact.after_put")

    async def put_checkpoint(self, attempt: str, rank: int, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Store the bytes. They count as a checkpoint once the CHECKPOINT message has come."""
        key = checkpoint_key(await self._job_of(attempt), sha256)
        number = next(self._upload_numbers)
        async with gc_marks.mark_upload(self._services.ports, key, f"{attempt}:{rank}", number) as sent:
            await self._uploads.put_object(key, sha256, chunks, LARGEST_CHECKPOINT, sent.begin)
            crashpoint("checkpoint.after_put")

    async def open_checkpoint(self, attempt: str, rank: int, sha256: str) -> StoredFile:
        """Return a kept checkpoint of the attempt's job, or the one it starts from. Raises NotFound for any other."""
        job, c = await self._job_of(attempt), t.checkpoints.c
        start = select(t.attempts.c.resume_from).where(t.attempts.c.id == attempt).scalar_subquery()
        its_own = (or_(c.job == job, c.id == start), c.sha256 == sha256, c.pruned_at.is_(None))
        query = select(c.job, c.size).where(*its_own).limit(1)
        row = await self._services.ports.db.read(lambda conn: conn.execute(query).first())
        if row is None:
            raise NotFound(f"This job has no checkpoint {sha256[:12]}….", fix="Resume from another one.")
        return StoredFile(checkpoint_key(row.job, sha256), row.size, sha256)

    async def open_bundle(self, sha: str) -> StoredFile:
        return await self._bundles.open(sha)

    async def _record_host(self, machine: str) -> None:
        """Record a contact of the host: at once if that changes the row (not up yet, or seen gone), else in a batch."""
        known = await self._services.ports.db.read(lambda conn: repository.load_machine(conn, machine))
        making = known is not None and known.state in (MachineState.INTENDED, MachineState.CREATING)
        if known is not None and (making or known.gone_sightings):
            await self._services.writer.write(lambda unit: _advance_host_seen(unit, machine))
        else:
            self._services.contacts.record_machine(machine, self._services.ports.clock.now())

    async def _load_desired(self, machine: str) -> Desired:
        key = self._services.key
        now = self._services.ports.clock.now()
        found = await self._services.ports.db.read(lambda conn: desired.desired_document(conn, machine, key, now))
        if found is None:
            raise MachineUnwanted("This machine is no longer wanted.", fix="Its host ends when nothing runs.")
        return found

    async def _record_and_read(self, attempt: str) -> DesiredAttemptView:
        self._services.contacts.record_attempt(attempt, self._services.ports.clock.now())
        return await self.read_attempt_desired(attempt)

    async def read_attempt_desired(self, attempt: str) -> DesiredAttemptView:
        """Return what is wanted of the attempt, without recording a contact. Raises AttemptGone."""
        found = await self._services.ports.db.read(lambda conn: desired.attempt_desired(conn, attempt))
        if found is None:
            raise AttemptGone("There is no such attempt.", fix="The runner ends itself.")
        return found

    async def _machine_of(self, attempt: str) -> str:
        machine = await self._services.ports.db.read(lambda conn: _MACHINE_OF.value(conn, attempt=attempt))
        return str(machine or "")

    async def _is_announced(self, attempt: str, rank: int, n: int) -> bool:
        found = await self._services.ports.db.read(lambda conn: SEGMENT.value(conn, attempt=attempt, rank=rank, n=n))
        return found is not None

    def _remember(self, attempt: str, job: str) -> None:
        if len(self._jobs) >= JOB_CACHE_SIZE:
            self._jobs.clear()
        self._jobs[attempt] = job

    async def _job_of(self, attempt: str) -> str:
        known = self._jobs.get(attempt)
        if known is not None:
            return known
        job = await self._services.ports.db.read(lambda conn: _JOB_OF.value(conn, attempt=attempt))
        if job is None:
            await self._services.ports.db.read(restore_hold.refuse_while_held)
            raise AttemptGone("There is no such attempt.", fix="The runner ends itself.")
        self._remember(attempt, str(job))
        return str(job)


def _load_wanted(unit: UnitOfWork, machine: str) -> Machine:
    row = repository.load_machine(unit.conn, machine)
    if row is None or row.state in (MachineState.RELEASING, MachineState.GONE):
        restore_hold.refuse_for_old_machine(unit.conn, machine)
        raise MachineUnwanted("This machine is no longer wanted.", fix="Its host ends.")
    return row


def _advance_host_seen(unit: UnitOfWork, machine: str) -> None:
    unit.advance_machine(_load_wanted(unit, machine), HostSeen())


def _claim(unit: UnitOfWork, machine: str, native_id: str) -> None:
    row = _load_wanted(unit, machine)
    if row.claimed_by not in (None, native_id):
        raise Conflict("Another host has claimed this machine.", fix="This one shuts down.")
    if row.claimed_by is None:
        if unit.now > row.launch_deadline + NONCE_SECONDS:
            raise NotAllowed("The nonce has expired.", fix="The machine is launched again.")
        claimed = replace(row, claimed_by=native_id)
        repository.save_machine(unit.conn, row, claimed, (), unit.now)
