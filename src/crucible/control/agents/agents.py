"""What hosts and runners ask of the control plane."""

from __future__ import annotations

import hmac
import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, select

from crucible.control.agents import desired, ingest
from crucible.control.agents.agent_downloads import AgentDownloads
from crucible.control.agents.contacts import Contacts
from crucible.control.agents.ingest import Ingest, add_note
from crucible.control.agents.sessions import AgentSession, Sessions
from crucible.control.agents.slots import AttemptGone, attempt_over, open_slot
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.objects import gc_marks, unannounced
from crucible.control.objects.bundles import Bundles, StoredFile
from crucible.control.objects.unannounced import Unannounced, Upload, UploadKind
from crucible.control.objects.uploads import LANE, PUT_DEADLINE, Uploads
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.unit_of_work import UnitOfWork, Writer
from crucible.control.runtime.ports import Ports
from crucible.control.secrets import Vault
from crucible.control.telemetry.feed import Feed, Hint
from crucible.control.telemetry.tails import OutputTails
from crucible.control.upkeep import restore_hold
from crucible.core.errors import BadInput, Conflict, CrucibleError, NotAllowed, NotFound
from crucible.core.lifecycle import AttemptState, Machine, MachineState
from crucible.core.lifecycle.facts import HostClaimed, HostSeen, RunnerContacted
from crucible.core.lifecycle.machines import MAKING
from crucible.core.views.agents import DesiredAttemptView, SessionCallView
from crucible.storage import Store
from crucible.storage.layout import checkpoint_key, log_segment_key, output_key
from crucible.wire.documents.desired import Desired
from crucible.wire.documents.messages import BadBatch, decode_batch, derive_secret

NONCE_SECONDS = 30 * 60
"""How long after its launch a machine can be claimed, and claimed again by a host that got no answer."""
JOB_CACHE_SIZE = 10_000
"""Attempts whose job is cached, to save a query per message."""
LONGEST_WAIT = 30.0
LARGEST_ARTIFACT = 1024**4
LARGEST_CHECKPOINT = 1024**4


_MACHINE_OF = Statement(select(t.slots.c.machine).where(t.slots.c.attempt == bindparam("attempt")).limit(1))
_JOB_OF = Statement(select(t.attempts.c.job).where(t.attempts.c.id == bindparam("attempt")))
_ASSIGNED = Statement(
    select(t.attempts.c.state, t.jobs.c.spec)
    .join(t.jobs, t.jobs.c.id == t.attempts.c.job)
    .where(t.attempts.c.id == bindparam("attempt"))
)
_START = Statement(
    select(t.checkpoints.c.job, t.checkpoints.c.size)
    .join(t.attempts, t.attempts.c.resume_from == t.checkpoints.c.id)
    .where(
        t.attempts.c.id == bindparam("attempt"),
        t.checkpoints.c.sha256 == bindparam("sha256"),
        t.checkpoints.c.pruned_at.is_(None),
    )
)


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
    def __init__(
        self,
        services: AgentServices,
        ingest: Ingest,
        uploads: Uploads,
        bundles: Bundles,
        downloads: AgentDownloads,
    ) -> None:
        self.downloads = downloads
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

    async def require_open(self, attempt: str, rank: int) -> None:
        """Raise AttemptGone unless the attempt has a slot of this rank that has not ended."""
        await self._services.ports.db.read(lambda conn: open_slot(conn, attempt, rank))

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
            raise attempt_over()
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
        self,
        attempt: str,
        rank: int,
        n: int,
        start: int,
        lines: int,
        sha256: str,
        data: bytes,
        *,
        contact: bool = True,
        announced: bool = False,
    ) -> None:
        """Store a segment. It counts once its LOG message has come; from then on it never changes.

        `announced`: the message is at hand already. Raises AttemptGone, BadInput.
        """

        def begin(conn: Connection) -> tuple[str, str | None]:
            """Return the job, and the key to store the segment under; None if it is recorded."""
            job = open_slot(conn, attempt, rank).job
            key = log_segment_key(job, attempt, rank, n, sha256)
            try:
                if ingest.has_segment(conn, attempt, rank, n):
                    return job, None
                upload = Upload(attempt, rank, UploadKind.LOG, key)
                self._begin_upload(conn, upload, len(data), announced=announced)
            except (ValueError, Unannounced) as error:
                # Not as trouble of ours: an agent would hold back the very messages that announce what is stored.
                raise BadInput("The log segment cannot be stored.", why=str(error), fix="Send it later.") from error
            return job, key

        ports = self._services.ports
        job, key = await ports.db.write(begin)
        if key is not None:
            await ports.calls.run(LANE, lambda: ports.store.put(key, data, sha256=sha256), PUT_DEADLINE)
            crashpoint("log.after_put")
        self._show_tail(attempt, rank, job, start, data, contact=contact)

    async def put_tail(self, attempt: str, rank: int, start: int, data: bytes) -> None:
        """Keep the newest output in memory, for users who follow it. Raises AttemptGone."""
        slot = await self._services.ports.db.read(lambda conn: open_slot(conn, attempt, rank))
        self._show_tail(attempt, rank, slot.job, start, data, contact=True)

    def _show_tail(self, attempt: str, rank: int, job: str, start: int, data: bytes, *, contact: bool) -> None:
        if rank:
            return
        self._services.tails.add(attempt, start, data)
        if contact:
            self._services.contacts.record_attempt(attempt, self._services.ports.clock.now())
        self._services.feed.publish(job, {Hint.LOG})

    async def put_artifact(
        self, attempt: str, rank: int, path: str, sha256: str, chunks: AsyncIterator[bytes], *, announced: bool = False
    ) -> None:
        """Store an artifact. It counts once the ARTIFACT message has come; from then on it never changes.

        `announced`: the message is at hand already. Raises AttemptGone, Unannounced, and Conflict if another content
        is recorded under this path.
        """

        def check(conn: Connection) -> Upload | None:
            """Return what is to be stored; None if it is recorded."""
            job = open_slot(conn, attempt, rank).job
            known = ingest.recorded_artifact(conn, attempt, path)
            if known is not None and known != sha256:
                raise Conflict(
                    f"{path!r} is stored already, with other content.",
                    why="What an attempt has stored and announced never changes.",
                    fix="Store it under another name.",
                )
            upload = Upload(attempt, rank, UploadKind.ARTIFACT, output_key(job, attempt, sha256), path)
            self._check_room(conn, upload, announced=announced)
            return upload if known is None else None

        upload = await self._services.ports.db.read(check)
        if upload is None:
            async for _ in chunks:
                pass
            return

        async def begin(size: int) -> None:
            def add(conn: Connection) -> None:
                if check(conn) is not None:
                    self._begin_upload(conn, upload, size, announced=announced)

            await self._services.ports.db.write(add)

        await self._uploads.put_object(upload.key, sha256, chunks, LARGEST_ARTIFACT, begin)
        crashpoint("artifact.after_put")

    async def put_checkpoint(
        self, attempt: str, rank: int, sha256: str, chunks: AsyncIterator[bytes], *, announced: bool = False
    ) -> None:
        """Store the bytes. They count as a checkpoint once the CHECKPOINT message has come.

        `announced`: the message is at hand already. Raises AttemptGone, Unannounced.
        """

        def check(conn: Connection) -> Upload:
            job = open_slot(conn, attempt, rank).job
            upload = Upload(attempt, rank, UploadKind.CHECKPOINT, checkpoint_key(job, sha256))
            self._check_room(conn, upload, announced=announced)
            return upload

        upload = await self._services.ports.db.read(check)
        number = next(self._upload_numbers)
        async with gc_marks.mark_upload(self._services.ports, upload.key, f"{attempt}:{rank}", number) as sent:

            async def begin(size: int) -> None:
                def add(conn: Connection) -> None:
                    open_slot(conn, attempt, rank)
                    self._begin_upload(conn, upload, size, announced=announced)

                await self._services.ports.db.write(add)
                await sent.begin()

            await self._uploads.put_object(upload.key, sha256, chunks, LARGEST_CHECKPOINT, begin)
            crashpoint("checkpoint.after_put")

    def _check_room(self, conn: Connection, upload: Upload, *, announced: bool) -> None:
        if not announced:
            unannounced.check_room(conn, upload)

    def _begin_upload(self, conn: Connection, upload: Upload, size: int, *, announced: bool) -> None:
        """Note an object before the store is asked to take it, so that it is removed if no message announces it."""
        self._check_room(conn, upload, announced=announced)
        unannounced.add(conn, upload, size, self._services.ports.clock.now())

    async def open_checkpoint(self, attempt: str, rank: int, sha256: str) -> StoredFile:
        """Return the checkpoint that the attempt starts from. Raises AttemptGone, and NotFound for any other."""

        def read(conn: Connection) -> StoredFile:
            open_slot(conn, attempt, rank)
            row = _START.first(conn, attempt=attempt, sha256=sha256)
            if row is None:
                raise NotFound(
                    f"This attempt does not start from a checkpoint {sha256[:12]}….", fix="Resume from another one."
                )
            return StoredFile(checkpoint_key(row["job"], sha256), row["size"], sha256)

        return await self._services.ports.db.read(read)

    async def open_bundle(self, attempt: str, sha256: str) -> StoredFile:
        """Return the bundle of the attempt's own job. Raises AttemptGone, and NotFound for any other bundle."""

        def is_assigned(conn: Connection) -> bool:
            row = _ASSIGNED.first(conn, attempt=attempt)
            if row is None:
                restore_hold.refuse_while_held(conn)
            if row is None or row["state"] == AttemptState.ENDED.value:
                raise attempt_over()
            return codec.parse_spec(row["spec"]).bundle == sha256

        if not await self._services.ports.db.read(is_assigned):
            raise NotFound(f"This attempt has no bundle {sha256[:12]}….", fix="Its assignment names its bundle.")
        return await self._bundles.open(sha256)

    async def _record_host(self, machine: str) -> None:
        """Record a contact of the host, in a batch unless it changes more than when the host was last heard from."""
        now = self._services.ports.clock.now()
        known = await self._services.ports.db.read(lambda conn: repository.load_machine(conn, machine))
        if known is not None and _is_news(known, now):
            await self._services.writer.write(lambda unit: _advance_host_seen(unit, machine))
        else:
            self._services.contacts.record_machine(machine, now)

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


def _is_news(machine: Machine, now: float) -> bool:
    """Return whether a contact by the host changes its state, its sightings, or who may still claim it."""
    making = machine.state in MAKING
    launched = machine.state is MachineState.UP and machine.launch_settled and machine.launch_deadline > now
    return making or launched or machine.gone_sightings > 0


def _advance_host_seen(unit: UnitOfWork, machine: str) -> None:
    unit.advance_machine(_load_wanted(unit, machine), HostSeen())


def _nonce_expired(machine: Machine, now: float) -> bool:
    """Return whether the time to claim the machine is over. It stands still while its provider lets it wait."""
    return machine.started_at is not None and now > max(machine.launch_deadline, machine.started_at) + NONCE_SECONDS


def _claim(unit: UnitOfWork, machine: str, native_id: str) -> None:
    row = _load_wanted(unit, machine)
    if row.claimed_by not in (None, native_id):
        raise Conflict("Another host has claimed this machine.", fix="This one shuts down.")
    if row.may_queue and row.native_id not in (None, native_id):
        raise NotAllowed("The provider gave this machine another id.", fix="This host shuts down.")
    if _nonce_expired(row, unit.now):
        raise NotAllowed("The nonce has expired.", fix="The machine is launched again.")
    if row.claimed_by is None:
        unit.advance_machine(row, HostClaimed(native_id))
    elif row.last_seen is not None and row.last_seen >= row.launch_deadline:
        # A host that has spoken has its secret: who asks again is not that host.
        raise Conflict(
            "This machine's host has its secret already.",
            why="A claim is repeated only by a host that got no answer, or that was started again without its files.",
            fix="This one shuts down. A host that lost its files is started again.",
        )
