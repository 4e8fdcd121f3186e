"""A whole control plane in memory and in virtual time, with a backend whose behaviour a test decides."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from obstore.store import MemoryStore
from sqlalchemy import Connection, Table, insert, select, text
from tests.control.fakes import (
    CAPACITY,
    DEPLOYMENT,
    START,
    CountedIds,
    EvenRandom,
    FakeBackend,
    FakeClock,
    FakePost,
    InlineCalls,
)
from tests.control.moon import Moon

from crucible.backends.base import LaunchCall
from crucible.control.agents.agents import Agents
from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.db.migrate import create_schema
from crucible.control.db.port import DatabaseClosed, Db
from crucible.control.db.sqlite.connection import driver_of
from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.hooks import WebhookTransport
from crucible.control.jobs.submit import StoredJob
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import Changes, UnitOfWork
from crucible.control.resources.machines import Machines
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment, Services
from crucible.control.runtime.system_ports import LocalWakeups
from crucible.core.compute.resources import Allocation, GiB
from crucible.core.ids import Prefix, make_id
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle import Attempt, Job, Machine, Slot, World
from crucible.storage import ObjectStore
from crucible.wire.documents.messages import Batch, Message, MessageKind, derive_secret, encode_batch

T = TypeVar("T")

KEY = b"the deployment's key"


@dataclass
class ControlHarness:
    """The services of a control plane, built as the server builds them, each accessible to tests."""

    clock: FakeClock
    calls: InlineCalls
    backend: FakeBackend
    backends: dict[str, FakeBackend]
    services: Services

    def __post_init__(self) -> None:
        services = self.services
        self.ports, self.deployment, self.feed, self.writer = (
            services.ports,
            services.deployment,
            services.feed,
            services.writer,
        )
        self.connected, self.duties, self.scheduler = services.backends, services.duties, services.scheduler
        self.offers, self.admission = services.offers, services.admission
        _run_scheduler_after_writes(services)
        self.submitter, self.performer, self.poller = services.submitter, services.performer, services.poller
        self.janitor, self.contacts, self.reconciler = services.janitor, services.contacts, services.reconciler
        self.tails, self.logs, self.bundles, self.agents = (
            services.tails,
            services.logs,
            services.bundles,
            services.agents,
        )
        self.uploads, self.ledger, self.revival = services.uploads, services.ledger, services.resumer
        self.machines = Machines(services.ports, services.backends, services.writer, services.janitor, services.access)

    async def read(self, fn: Callable[[Connection], T]) -> T:
        return await self.ports.db.read(fn)

    async def sql(self, fn: Callable[[Connection], T]) -> T:
        return await self.ports.db.write(fn)

    async def rows(self, table: Table) -> list[dict[str, Any]]:
        query = select(table).order_by(*table.primary_key.columns)
        return [dict(r) for r in await self.read(lambda conn: conn.execute(query).mappings().all())]

    async def world(self, job: str) -> World:
        world = await self.read(lambda conn: repository.load_world(conn, job))
        assert world is not None
        return world

    async def machine(self, machine: str | None = None) -> Machine:
        """Return the named machine, or the newest one."""
        name = machine or (await self.rows(t.machines))[-1]["id"]
        found = await self.read(lambda conn: repository.load_machine(conn, name))
        assert found is not None
        return found

    async def accept(self, spec: JobSpec, key: str | None = None) -> StoredJob:
        await self.admission.prepare([spec])
        return await self.writer.write(lambda unit: self.submitter.store(unit, spec, key))

    async def submit(self, **more: Any) -> str:
        return (await self.accept(job_spec(**more))).job

    async def attempt(self, job: str) -> Attempt:
        return (await self.world(job)).attempts[-1]

    async def runner(self, job: str) -> FakeRunner:
        return FakeRunner(self.agents, (await self.attempt(job)).id)

    async def place(self) -> None:
        """Let the scheduler have its round, and another one once backends have answered what it asked."""
        await self.scheduler.round()
        await asyncio.gather(*self.offers._requests.values())
        await self.scheduler.round()

    async def host_up(self) -> str:
        """Launch the intended machine; its host claims it and makes contact. Return the machine's ID."""
        while await self.performer.perform_due():
            pass
        machine = (await self.machine()).id
        await self.host_speaks(machine, f"i-{machine}")
        return machine

    async def host_speaks(self, machine: str, native_id: str) -> None:
        """Send a host's first requests: its claim, unless it has its secret, then for its desired document."""
        if (await self.machine(machine)).claimed_by != native_id:
            await self.agents.claim(machine, secret("nonce", machine).decode(), native_id)
        await self.agents.desired(machine, 0, 0)

    async def listen(self, seconds: float) -> None:
        """Let time pass, with regular sweeps."""
        end = self.clock.now() + seconds
        await self.reconciler.round()
        while self.clock.now() < end:
            self.clock.time = min(self.clock.now() + 5.0, end)
            await self.reconciler.round()

    async def running(self, **more: Any) -> tuple[str, FakeRunner]:
        """Submit a job and start its process; return its ID and its runner."""
        job = await self.submit(**more)
        await self.host_up()
        runner = await self.runner(job)
        await runner.say(MessageKind.STARTED, pid=77)
        return job, runner

    async def add_rank(self, attempt: str, rank: int) -> None:
        """A second runner of the attempt, beside the first."""
        (slot,) = [row for row in await self.rows(t.slots) if (row["attempt"], row["rank"]) == (attempt, 0)]
        await self.sql(add_row(t.slots, **{**slot, "rank": rank, "acked": 0}))

    async def change_machine(self, machine: str, *facts: Any) -> Machine:
        def change(unit: UnitOfWork) -> Machine:
            found = repository.load_machine(unit.conn, machine)
            assert found is not None
            return unit.advance_machine(found, *facts)

        return await self.writer.write(change)

    async def count(self, table: Table) -> int:
        return len(await self.rows(table))


def _run_scheduler_after_writes(services: Services) -> None:
    """Let the scheduler have its round at once after each write that wakes it, and after each sweep.

    In a server its loop does so a moment later.
    """
    write, announce = services.writer.write, services.writer.announce
    woken = [False]

    def note(changes: Changes) -> None:
        woken[0] |= changes.freed or bool(changes.queued)
        announce(changes)

    async def write_then_schedule(fn: Callable[[UnitOfWork], T]) -> T:
        result = await write(fn)
        if woken[0] and not services.scheduler._one_round.locked():
            woken[0] = False
            await services.scheduler.round()
        return result

    sweep = services.reconciler.round

    async def sweep_then_schedule() -> None:
        await sweep()
        await services.scheduler.round()

    services.writer.announce, services.writer.write = note, write_then_schedule  # type: ignore[method-assign]
    services.reconciler.round = sweep_then_schedule  # type: ignore[method-assign]


class FakeRunner:
    """Sends a runner's messages, numbered and signed."""

    def __init__(self, agents: Agents, attempt: str, rank: int = 0) -> None:
        self._agents = agents
        self.attempt = attempt
        self.rank = rank
        self.n = 0

    async def say(self, kind: MessageKind, /, **data: object) -> int:
        return await self.send([self.message(kind, **data)])

    async def end(self, code: int = 0, **data: object) -> int:
        """Send exit and end in one batch."""
        return await self.send(
            [self.message(MessageKind.EXITED, code=code, cause="exit", **data), self.message(MessageKind.ENDED)]
        )

    def message(self, kind: MessageKind, /, **data: object) -> Message:
        self.n += 1
        return Message(self.n, kind, 12.5, data)

    async def send(self, messages: Iterable[Message]) -> int:
        return await self._agents.ingest(self.attempt, self.rank, self.encoded(messages))

    def encoded(self, messages: Iterable[Message]) -> bytes:
        return encode_batch(Batch(self.attempt, self.rank, tuple(messages)), secret("attempt", self.attempt))

    async def log(self, n: int, start: int, text: bytes) -> None:
        """Store a log segment and report it."""
        lines, digest = text.count(b"\n"), sha(text)
        await self._agents.put_log(self.attempt, self.rank, n, start, lines, digest, text)
        await self.say(MessageKind.LOG, n=n, start=start, end=start + len(text), lines=lines, sha256=digest)

    async def artifact(self, path: str, data: bytes) -> None:
        """Stores a file and says so."""
        await self._agents.put_artifact(self.attempt, self.rank, path, sha(data), pieces(data))
        await self.say(MessageKind.ARTIFACT, path=path, size=len(data), sha256=sha(data))

    async def checkpoint(self, data: bytes, step: int) -> None:
        """Stores a checkpoint and says so."""
        await self._agents.put_checkpoint(self.attempt, self.rank, sha(data), pieces(data))
        told = {"name": f"step-{step}", "form": "file", "size": len(data), "sha256": sha(data), "step": step}
        await self.say(MessageKind.CHECKPOINT, **told)


_idle: list[Db] = []
"""Emptied databases of earlier tests: one with compiled statements is ten times faster."""


async def empty_database() -> Db:
    if _idle:
        return _idle.pop()
    db = new_database()
    await db.write(create_schema)
    return db


new_database: Callable[[], Db] = InlineDb
"""Create the database of a test; `--database postgres` replaces this function."""


@runtime_checkable
class Reopening(Protocol):
    """A database that can be reopened after it was closed."""

    def reopened(self) -> Db: ...


_TABLES = [table.name for table in reversed(t.metadata.sorted_tables)]
_WIPE_SQLITE = [f"DELETE FROM {name}" for name in (*_TABLES, "sqlite_sequence")]
_EMPTY = "".join(f"DELETE FROM {name}; " for name in _TABLES)
_RESTART = (
    "PERFORM setval(quote_ident(sequencename)::regclass, 1, false) FROM pg_sequences WHERE schemaname = 'public';"
)
_WIPE_POSTGRES = f"DO $$ BEGIN {_EMPTY}{_RESTART} END $$"
"""One statement, ten times faster than TRUNCATE, which creates new files for every table and index."""


async def give_back(db: Db) -> None:
    """Empty the database for the next test, once this test's unfinished tasks, which could write to it, have ended."""

    def wipe(conn: Connection) -> None:
        if conn.dialect.name == "postgresql":
            conn.execute(text(_WIPE_POSTGRES))
            return
        for statement in _WIPE_SQLITE:
            driver_of(conn).execute(statement)

    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        _, endless = await asyncio.wait(left, timeout=5)
        assert not endless, f"a test has left {endless}"
    try:
        await db.write(wipe)
    except DatabaseClosed:
        if not isinstance(db, Reopening):
            return
        db = db.reopened()
        await db.write(wipe)
    _idle.append(db)


async def make_harness(scratch: Path, *others: FakeBackend, most_nodes: int = 1) -> ControlHarness:
    """Return a control plane with a fake backend called `local`, and with `others`."""
    clock = FakeClock()
    calls = InlineCalls()
    ports = Ports(
        clock,
        CountedIds(clock),
        EvenRandom(),
        await empty_database(),
        ObjectStore(MemoryStore()),
        calls,
        LocalWakeups(),
        "w1",
    )
    backend = FakeBackend()
    harness = join(ports, clock, calls, {b.name: b for b in (backend, *others)}, scratch, most_nodes=most_nodes)
    await harness.offers.refresh()
    await harness.duties.renew(ports.db, clock)
    return harness


def join(
    ports: Ports,
    clock: FakeClock,
    calls: InlineCalls,
    backends: dict[str, FakeBackend],
    scratch: Path,
    post: WebhookTransport | None = None,
    moon: Moon | None = None,
    most_nodes: int = 1,
) -> ControlHarness:
    """`moon`: a provider that can be connected (default: one of its own)."""
    factory, post = (moon or Moon()).factory(backends), post or FakePost(clock)
    given = Deployment(
        DEPLOYMENT, KEY, "http://agents", scratch, 1000, post=post, factory=factory, most_nodes=most_nodes
    )
    services = Services(ports, backends, given)
    return ControlHarness(clock=clock, calls=calls, backend=backends["local"], backends=backends, services=services)


async def other_worker(harness: ControlHarness, worker: str) -> ControlHarness:
    """Return a second process on the same database, with the same backends."""
    ports = replace(harness.ports, worker=worker)
    twin = join(
        ports, harness.clock, harness.calls, harness.backends, harness.deployment.scratch, harness.deployment.post
    )
    await twin.offers.refresh()
    return twin


def with_calls(harness: ControlHarness, calls: InlineCalls) -> ControlHarness:
    """Return the same process with other `Calls` to its backends."""
    return join(replace(harness.ports, calls=calls), harness.clock, calls, harness.backends, harness.deployment.scratch)


def service(harness: ControlHarness) -> ControlPlane:
    """Return the control plane over the same ports and backends."""
    return ControlPlane(harness.ports, harness.backends, harness.deployment)


def job_spec(**more: Any) -> JobSpec:
    """Return the spec of a small job; `cpus`, `gpus` and `memory` are short for resources."""
    size = {"cpus": 1.0, "memory_bytes": GiB}
    for short, name in (
        ("cpus", "cpus"),
        ("gpus", "gpus"),
        ("memory", "memory_bytes"),
        ("seconds", "seconds"),
    ):
        if short in more:
            size[name] = more.pop(short)
    return JobSpec(**{"command": ("python", "train.py"), "resources": size, **more})


def make_machine(machine: str, **more: Any) -> Machine:
    given = {
        "backend": "local",
        "owner": "pool:local",
        "rate": 0,
        "created_at": START,
        "started_at": START,
        "launch_deadline": START + 30,
        "call": json.dumps(asdict(LaunchCall("local", machine, "make", {"deployment": DEPLOYMENT}))),
        "capacity": CAPACITY,
        "bills": False,
    }
    return Machine(machine, **{**given, **more})


def make_attempt(job: Job, machine: str, attempt: str, **more: Any) -> Attempt:
    allocation = Allocation(cpus=1, memory_bytes=GiB)
    given = {
        "number": job.attempts + 1,
        "generation": job.generation,
        "backend": "local",
        "placed_at": START,
        "slots": (Slot(0, machine, allocation),),
    }
    return Attempt(attempt, job.id, **{**given, **more})


def new_id(prefix: Prefix, number: int) -> str:
    return make_id(prefix, int(START * 1000), number)


def secret(purpose: str, name: str) -> bytes:
    return derive_secret(KEY, purpose, name)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def add_row(table: Table, **values: Any) -> Callable[[Connection], int]:
    return lambda conn: conn.execute(insert(table).values(values)).rowcount
