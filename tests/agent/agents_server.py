"""The real agents' listener over a real control plane in memory, in real time, on a loopback port."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from obstore.store import MemoryStore
from sqlalchemy import Table, delete, insert, select, update
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.client.faults import Faults
from tests.control import harness as control_harness
from tests.control.fakes import DEPLOYMENT, EvenRandom, FakeBackend, InlineCalls
from tests.control.harness import ControlHarness, FakeRunner, job_spec, make_machine, pieces, sha
from tests.server.loopback import Loopback, background_loop, transport_of

from crucible.control.db import schema as t
from crucible.control.objects import checkpoints
from crucible.control.reconcile import codec, repository
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.compose import AgentsUrlFile
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment, Services
from crucible.control.runtime.system_ports import LocalWakeups, SystemClock, SystemIds
from crucible.control.telemetry import points
from crucible.core.ids import Prefix
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle import MachineState, World
from crucible.core.lifecycle.facts import CancelRequested, Unwanted
from crucible.core.people.identity import DEFAULT_PROJECT, OWNER
from crucible.core.secret import Secret
from crucible.server.agents.api import build_agents_api
from crucible.server.security.size_limits import MAX_BUNDLE
from crucible.storage import ObjectStore
from crucible.storage.layout import checkpoint_key, log_segment_key, output_key
from crucible.wire.documents.desired import Resume
from crucible.wire.documents.messages import Message as AgentMessage
from crucible.wire.documents.messages import MessageKind, decode_batch, derive_secret

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 20.0
NATIVE_ID = "here"
BAD_DAY = b'{"detail": "a bad day"}'
ALWAYS = float("inf")


class NamedIds(SystemIds):
    """Makes ids; those of the next attempts are chosen by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: deque[str] = deque()

    def new(self, prefix: Prefix) -> str:
        if prefix is Prefix.ATTEMPT and self.attempts:
            return self.attempts.popleft()
        return super().new(prefix)


class Attempt:
    """Everything that has arrived from one attempt."""

    def __init__(self, server: AgentsServer, id: str, job: str) -> None:
        self._server = server
        self.id = id
        self.job = job
        self.messages: list[AgentMessage] = []
        """Messages that the listener accepted, in order."""
        self.tails: list[bytes] = []
        """Output that was sent to followers before it was stored."""

    def of(self, kind: MessageKind) -> list[AgentMessage]:
        return [message for message in self.messages if message.kind is kind]

    @property
    def notes(self) -> list[str]:
        return [str(message.data["text"]) for message in self.of(MessageKind.NOTE)]

    def world(self) -> World:
        """Return the job with its attempts, as the control plane knows it."""
        return self._server.call(self._server.harness.world, self.job)

    def log(self) -> bytes:
        """Return the stored output. Fails unless it has no gap and matches its announcements."""
        data = b""
        for row in self._rows(t.log_segments):
            piece = self._server.store.get(log_segment_key(self.job, self.id, 0, row["n"], row["sha256"]))
            assert (row["start"], row["end"]) == (len(data), len(data) + len(piece))
            assert row["lines"] == piece.count(b"\n")
            assert row["sha256"] == hashlib.sha256(piece).hexdigest()
            data += piece
        return data

    @property
    def output(self) -> bytes:
        """The output as users see it: the stored part, and the tail that is not stored yet."""
        logs = self._server.harness.logs
        return self._server.call(logs.page, self.job, None, 0, 10**9, None).data

    @property
    def artifacts(self) -> dict[str, bytes]:
        """The stored files by path, each verified against its announcement."""
        found = {}
        for row in self._rows(t.artifacts):
            data = found[row["path"]] = self._server.store.get(output_key(self.job, self.id, row["sha256"]))
            assert (row["size"], row["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        return found

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The rows of stored checkpoints in order, each with its verified `data`."""
        found = sorted(self._rows(t.checkpoints), key=lambda row: row["cursor"])
        for row in found:
            row["data"] = self._server.store.get(checkpoint_key(self.job, row["sha256"]))
            assert (row["size"], row["sha256"]) == (len(row["data"]), hashlib.sha256(row["data"]).hexdigest())
        return found

    def points(self, name: str) -> list[tuple[float, float | None, float]]:
        """Return the stored points of a series: step, value and time."""
        harness = self._server.harness
        series = self._server.call(harness.read, lambda conn: points.read_series(conn, self.id, (name,), 1000))
        return list(series[name].points) if name in series else []

    def _rows(self, table: Table) -> list[dict[str, Any]]:
        rows = self._server.call(self._server.harness.rows, table)
        return [row for row in rows if row["attempt"] == self.id]


class AgentsServer:
    """A deployment with one machine, whose server can die and restart on the same database.

    Methods are for a test's own thread. `url_file` names the server that runs, as an embedded one does.
    """

    def __init__(self, folder: Path) -> None:
        self.url_file = folder / "agents.url"
        self.faults = Faults()
        self.attempts: dict[str, Attempt] = {}
        self.requests: list[tuple[str, str]] = []
        self.connections: set[object] = set()
        """The client addresses of all connections that brought a request."""
        self.devices: list[str] = []
        """The devices that hosts reported, as they sent them."""
        self._scratch = folder / "server"
        self._scratch.mkdir()
        self._changed = threading.Condition()
        self._changes = 0
        self._holds_ends = False
        self._listener: Loopback | None = None
        self.call(self._set_up)
        self.start()

    # The server

    def start(self) -> None:
        """Start a server process at another address."""
        self.call(self._start)

    def down(self) -> None:
        """End the server as if it was killed: connections break at any point."""
        self.call(self._down)

    def close(self) -> None:
        self.call(self._close)

    async def _set_up(self) -> None:
        self._ids = NamedIds()
        db = await control_harness.empty_database()
        clock, store = SystemClock(), ObjectStore(MemoryStore())
        self._ports = Ports(clock, self._ids, EvenRandom(), db, store, InlineCalls(), LocalWakeups(), "w1")
        self.store = self._ports.store
        self.machine = self._ids.new(Prefix.MACHINE)
        now = clock.now()
        # As the place has just been asked for it, so that its host may claim it.
        times = {"created_at": now, "launch_deadline": now + 60}
        machine = make_machine(self.machine, state=MachineState.CREATING, **times)
        await db.write(lambda conn: conn.execute(insert(t.machines).values(codec.machine_row(machine))))

    async def _start(self) -> None:
        clock: Any = self._ports.clock
        calls: Any = self._ports.calls
        backend = FakeBackend()
        backends = {backend.name: backend}
        deployment = Deployment(DEPLOYMENT, control_harness.KEY, "http://agents", self._scratch, MAX_BUNDLE)
        services = Services(self._ports, backends, deployment)
        self.harness = ControlHarness(clock=clock, calls=calls, backend=backend, backends=backends, services=services)
        await self.harness.offers.refresh()
        self._closing = asyncio.Event()
        self._api: ASGIApp = build_agents_api(self.harness.agents, self._closing)
        self._listener = Loopback(self)
        await self._listener.start()
        self.url = self._listener.url
        AgentsUrlFile(self.url_file, self.url).write()

    async def _down(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        await listener.kill()
        self._closing.set()
        if listener.tasks:
            await asyncio.wait(listener.tasks, timeout=SECONDS)

    async def _close(self) -> None:
        await self._down()
        await control_harness.give_back(self._ports.db)

    # What is wanted

    @property
    def nonce(self) -> str:
        return derive_secret(control_harness.KEY, "nonce", self.machine).decode()

    @staticmethod
    def secret(attempt: str) -> str:
        return derive_secret(control_harness.KEY, "attempt", attempt).decode()

    def set_terms(self, lease_seconds: float | None = None, ends_in: float | None = None) -> None:
        """Limit the machine's life from now on. Call it before its host starts."""
        ends_at = None if ends_in is None else self._ports.clock.now() + ends_in
        self.call(self._set_machine, lease_seconds=lease_seconds, ends_at=ends_at)

    def run(self, spec: JobSpec, attempt: str, *, cancelled: bool = False) -> Attempt:
        """Submit a job whose attempt has this id. `cancelled`: cancel it before its machine learns of it."""
        self.call(self._run, spec, attempt, cancelled)
        return self.attempts[attempt]

    def stop(self, attempt: str) -> None:
        job = self.attempts[attempt].job
        bulk = self.harness.services.bulk
        self.call(self.harness.writer.write, lambda unit: bulk.request_cancel(unit, job, OWNER))

    def ask_checkpoint(self, attempt: str) -> None:
        """Ask the program for a checkpoint, once it runs."""
        self.wait_for(attempt, MessageKind.STARTED)
        self.call(self.harness.revival.request_checkpoint, self.attempts[attempt].job)

    def forget(self, attempt: str) -> None:
        """Replace the database by an older one, which does not have this attempt."""
        self.call(self._forget, attempt)

    def hold_ends(self) -> None:
        """Keep ended attempts in the machine's document until `release_ends`, so that its host removes nothing."""
        listed: dict[str, Any] = {}
        self._holds_ends = True

        def change(document: dict[str, Any]) -> dict[str, Any]:
            listed.update({item["attempt"]: item for item in document["assignments"]})
            return {**document, "assignments": list(listed.values())} if self._holds_ends else document

        self.faults.change("*/machines/*/desired", change)

    def release_ends(self) -> None:
        self._holds_ends = False
        self.publish()

    def publish(self) -> None:
        """Answer the host once more, although nothing has changed."""
        self.call(self._set_machine, desired_version=t.machines.c.desired_version + 1)

    def end_machine(self) -> None:
        """Release the machine."""
        self.call(self.harness.change_machine, self.machine, Unwanted("a test"))

    def claim(self, native_id: str) -> None:
        """Claim the machine for this host."""
        self.call(self.harness.agents.claim, self.machine, self.nonce, native_id)

    def add_bundle(self, data: bytes) -> str:
        self.call(self._add_bundle, data)
        return sha(data)

    def add_checkpoint(
        self, attempt: str, data: bytes, name: str, form: str = "file", step: int | None = None
    ) -> Resume:
        """Store a checkpoint of the attempt, as its runner does, and return its entry in a resumed assignment."""
        return self.call(self._add_checkpoint, attempt, data, name, form, step)

    def assign(self, attempt: str, *, bundle: str | None = None, resume: Resume | None = None) -> None:
        """Make this the code of the attempt's job, or the checkpoint that it starts from: it may read no other."""
        if bundle is not None:
            job = t.jobs.c.id == self.attempts[attempt].job
            spec = job_spec(bundle=bundle).model_dump_json()
            self.call(self.harness.sql, lambda conn: conn.execute(update(t.jobs).where(job).values(spec=spec)))
        if resume is not None:
            this, start = t.attempts.c.id == attempt, {"resume_from": resume.id}
            self.call(self.harness.sql, lambda conn: conn.execute(update(t.attempts).where(this).values(start)))

    def set_secret(self, name: str, value: str) -> None:
        self.call(self.harness.services.vault.set, OWNER, DEFAULT_PROJECT, name, Secret(value))

    async def _set_machine(self, **values: object) -> None:
        statement = update(t.machines).where(t.machines.c.id == self.machine).values(**values)
        await self.harness.sql(lambda conn: conn.execute(statement))
        self._ports.wakeups.wake(f"machine:{self.machine}")

    async def _run(self, spec: JobSpec, attempt: str, cancelled: bool) -> None:
        harness = self.harness
        await harness.duties.renew(self._ports.db, self._ports.clock)
        self._ids.attempts.append(attempt)

        def submit(unit: UnitOfWork) -> str:
            job = harness.submitter.store(unit, spec, None).job
            placed = repository.load_world(unit.conn, job)
            assert placed is not None
            assert placed.live is not None, placed.job.waiting
            assert placed.live.id == attempt
            self.attempts[attempt] = Attempt(self, attempt, job)
            if cancelled:
                unit.advance(placed, CancelRequested())
            return job

        await harness.writer.write(submit)

    async def _forget(self, attempt: str) -> None:
        def forget(conn: Any) -> None:
            for table in reversed(t.metadata.sorted_tables):
                if any(key.column is t.attempts.c.id for key in table.foreign_keys):
                    conn.execute(delete(table).where(table.c.attempt == attempt))
            conn.execute(delete(t.attempts).where(t.attempts.c.id == attempt))

        await self.harness.sql(forget)
        self._ports.wakeups.wake(f"machine:{self.machine}")

    async def _add_bundle(self, data: bytes) -> None:
        await self.harness.bundles.put(OWNER, sha(data), pieces(data))

    async def _add_checkpoint(self, attempt: str, data: bytes, name: str, form: str, step: int | None) -> Resume:
        await self.harness.agents.put_checkpoint(attempt, 0, sha(data), pieces(data))
        fields = {"name": name, "form": form, "size": len(data), "sha256": sha(data), "step": step, "metric": None}
        await FakeRunner(self.harness.agents, attempt).say(MessageKind.CHECKPOINT, **fields)
        newest = select(t.checkpoints.c.id).order_by(t.checkpoints.c.cursor.desc()).limit(1)
        id = await self.harness.read(lambda conn: conn.execute(newest).scalar_one())
        found = await self.harness.read(lambda conn: checkpoints.load_resume(conn, id))
        assert found is not None
        return found

    # What has arrived

    @property
    def claimed_by(self) -> str | None:
        return self.call(self.harness.machine, self.machine).claimed_by

    def count(self, end: str) -> int:
        """Return the number of requests whose path has this end."""
        return sum(path.endswith(end) for _, path in self.requests)

    def wait(self, holds: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait until the condition holds. It is checked after every request."""
        deadline = time.monotonic() + seconds
        while True:
            seen = self._changes
            if holds():
                return
            with self._changed:
                # Not under the lock: `holds` may wait for the server's thread, which takes it.
                left = deadline - time.monotonic()
                came = self._changed.wait_for(lambda seen=seen: self._changes != seen, left)
            assert came, f"it did not come in time: { {id: a.messages for id, a in self.attempts.items()} }"

    def wait_for(self, attempt: str, kind: MessageKind, seconds: float = SECONDS) -> AgentMessage:
        arrived = self.attempts[attempt]
        self.wait(lambda: bool(arrived.of(kind)), seconds)
        return arrived.of(kind)[0]

    def wait_output(self, attempt: str, text: bytes, seconds: float = SECONDS) -> None:
        """Wait until users see this text."""
        self.wait(lambda: text in self.attempts[attempt].output, seconds)

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a coroutine function in the server's loop and return what it returns."""
        return self.begin(function, *args, **kwargs).result(SECONDS)

    def begin(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call in the server's loop without waiting for its result."""

        async def run() -> T:
            return await function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), background_loop())

    # In the server's loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests.append((scope.get("method", "GET"), scope["path"]))
        self.connections.add(scope["client"])
        for name, value in scope["headers"]:
            if name == b"x-crucible-devices":
                self.devices.append(value.decode())
        self._tell()
        await self.faults.pass_on(self._record, scope, receive, send, transport_of(send))
        self._tell()

    async def _record(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, and record what was accepted from an attempt, even if the response gets lost later."""
        keep = {"messages": self._keep_messages, "tail": self._keep_tail}.get(scope["path"].rpartition("/")[2])
        if keep is None:
            await self._api(scope, receive, send)
            return
        body = b""

        async def read() -> Message:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (200, 204):
                keep(self.attempts[scope["path"].split("/")[4]], body)
                self._tell()
            await send(message)

        await self._api(scope, read, answer)

    def _keep_messages(self, attempt: Attempt, body: bytes) -> None:
        known = attempt.messages
        batch = decode_batch(body, self.secret(attempt.id).encode())
        known += [message for message in batch.messages if message.n > len(known)]
        assert [message.n for message in known] == list(range(1, len(known) + 1))

    def _keep_tail(self, attempt: Attempt, body: bytes) -> None:
        attempt.tails.append(body)

    def _tell(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
