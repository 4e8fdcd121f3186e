"""A whole control plane in memory, in virtual time, with a place whose behaviour a test decides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from obstore.store import MemoryStore
from sqlalchemy import Connection, Table, delete, insert, select, text

from crucible.backends.base import (
    Bootstrap,
    Capabilities,
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    Observation,
    Reach,
    Seen,
    Slots,
)
from crucible.control import repository
from crucible.control.agents import Agents, Tools
from crucible.control.bundles import Bundles
from crucible.control.contacts import Contacts
from crucible.control.db import schema as t
from crucible.control.db.inline import InlineDb
from crucible.control.db.port import DatabaseClosed, Db
from crucible.control.effects import Bearings, Performer
from crucible.control.feed import Feed
from crucible.control.ingest import Ingest
from crucible.control.janitor import Janitor
from crucible.control.logs import Logs
from crucible.control.places import Places
from crucible.control.poller import Poller
from crucible.control.ports import Ports
from crucible.control.roles import Duties
from crucible.control.scheduler import Scheduler
from crucible.control.service import Control, Deployment
from crucible.control.submit import Accepted, Submit
from crucible.control.sweep import Sweep
from crucible.control.system import LocalWakeups
from crucible.control.tails import Tails
from crucible.control.unit import Unit, Writer
from crucible.control.uploads import Uploads
from crucible.core.errors import TimedOut
from crucible.core.ids import Prefix, make_id
from crucible.core.lifecycle import Attempt, Job, Machine, Slot, World
from crucible.core.offers import Offer
from crucible.core.resources import Allocation, Capacity, GiB, Resources
from crucible.core.spec import JobSpec
from crucible.storage import ObjectStore
from crucible.wire.messages import Batch, Kind, Message, derive_secret, encode_batch

T = TypeVar("T")

START = 1_700_000_000.0
KEY = b"the deployment's key"
DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 1, 1)
OTHER_DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 2, 2)
CAPACITY = Capacity(cpus=4, memory_bytes=16 * GiB, gpus=(0, 1), gpu_memory_bytes=8 * GiB, gpu_name="T4")


class FakeClock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def move(self, seconds: float) -> None:
        self.time += seconds


class CountedIds:
    """Ids in the order they were asked for."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._count = 0

    def new(self, prefix: Prefix) -> str:
        self._count += 1
        return make_id(prefix, int(self._clock.now() * 1000), self._count << 20 | self._count)


class EvenRandom:
    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


class InlineCalls:
    """Work is done at once in the caller; a lane in `hanging` does it but answers too late."""

    def __init__(self) -> None:
        self.hanging: set[str] = set()
        self.lanes: list[str] = []

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        self.lanes.append(lane)
        result = work()
        if lane in self.hanging:
            raise TimedOut(f"{lane} did not answer within {deadline:g} s.")
        return result

    async def close(self) -> None:
        self.lanes.append("closed")


@dataclass
class Made:
    """A machine at the fake place. `hidden` counts the lists that do not show it yet."""

    ref: MachineRef
    deployment: str
    seen: Seen = Seen.UP
    hidden: int = 0


@dataclass
class FakeBackend:
    """A place. `answers` are consumed one per launch, `ends` one per termination, the last one stays.

    An answer is "ok", "refused" (nothing is made), "lost" (made, the answer is lost), "nothing" (not made, and no
    answer either), or an exception to raise.
    """

    name: str = "local"
    capabilities: Capabilities = Capabilities(
        reach=Reach.LOOPBACK, slots=Slots.COUNTED, bills=False, shared_machines=True, in_place=True
    )
    capacity: Capacity = CAPACITY
    rate: int = 0
    lag: int = 0
    answers: list[str | Exception] = field(default_factory=lambda: ["ok"])
    ends: list[str | Exception] = field(default_factory=lambda: ["ok"])
    down: Exception | None = None
    made: dict[str, Made] = field(default_factory=dict)
    launches: list[LaunchCall] = field(default_factory=list)
    bootstraps: list[Bootstrap] = field(default_factory=list)
    finds: list[str] = field(default_factory=list)
    terminated: list[MachineRef] = field(default_factory=list)
    polls: int = 0

    def offers(self, need: Resources) -> Sequence[Offer]:
        self._reach()
        return [Offer(self.name, "here", "this computer", self.capacity, self.rate)]

    def call(self, order: MachineOrder) -> LaunchCall:
        return LaunchCall(
            self.name, order.machine, "make", {"deployment": order.deployment, "size": [1, 2.5, None]}
        )

    def launch(self, call: LaunchCall, bootstrap: Bootstrap) -> MachineRef:
        self._reach()
        self.launches.append(call)
        self.bootstraps.append(bootstrap)
        answer = self._next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        if answer == "refused":
            raise LaunchRefused("There is no room.")
        if answer == "nothing":
            raise LaunchUnknown("No answer.")
        ref = self._make(call)
        if answer == "lost":
            raise LaunchUnknown("No answer.")
        return ref

    def find(self, token: str) -> MachineRef | None:
        self._reach()
        self.finds.append(token)
        made = self.made.get(token)
        return made.ref if made is not None and self._shown(made) and made.seen is not Seen.GONE else None

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        self._reach()
        self.polls += 1
        return [self._observe(ref) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        self._reach()
        self.terminated.append(ref)
        answer = self._next(self.ends)
        if isinstance(answer, Exception):
            raise answer
        if answer == "ok" and ref.machine in self.made:
            self.made[ref.machine].seen = Seen.GONE

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        self._reach()
        ours = [m for m in self.made.values() if m.deployment == deployment and m.seen is not Seen.GONE]
        return [made.ref for made in ours if self._shown(made)]

    def add(self, machine: str, deployment: str = DEPLOYMENT) -> MachineRef:
        """A machine that somebody made there, with this tag."""
        ref = MachineRef(self.name, machine, f"i-{machine}", "here")
        self.made[machine] = Made(ref, deployment)
        return ref

    def show(self, machine: str, seen: Seen) -> None:
        self.made[machine].seen = seen

    def _make(self, call: LaunchCall) -> MachineRef:
        if call.token not in self.made:
            ref = MachineRef(self.name, call.token, f"i-{call.token}", "here")
            self.made[call.token] = Made(ref, str(call.parameters["deployment"]), hidden=self.lag)
        self.made[call.token].seen = Seen.UP
        return self.made[call.token].ref

    def _observe(self, ref: MachineRef) -> Observation:
        made = self.made.get(ref.machine)
        seen = made.seen if made is not None and self._shown(made) else Seen.GONE
        return Observation(ref, seen, f"it is {seen.value}")

    def _shown(self, made: Made) -> bool:
        made.hidden -= 1
        return made.hidden < 0

    def _reach(self) -> None:
        if self.down is not None:
            raise self.down

    @staticmethod
    def _next(answers: list[str | Exception]) -> str | Exception:
        return answers.pop(0) if len(answers) > 1 else answers[0]


@dataclass
class Rig:
    """The parts of a control plane, joined as the service joins them, each within a test's reach."""

    ports: Ports
    clock: FakeClock
    calls: InlineCalls
    backend: FakeBackend
    backends: dict[str, FakeBackend]
    feed: Feed
    writer: Writer
    places: Places
    duties: Duties
    scheduler: Scheduler
    submitter: Submit
    performer: Performer
    poller: Poller
    janitor: Janitor
    contacts: Contacts
    sweep: Sweep
    tails: Tails
    logs: Logs
    bundles: Bundles
    agents: Agents
    deployment: Deployment

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
        """The one named, or the only one there is."""
        name = machine or (await self.rows(t.machines))[-1]["id"]
        found = await self.read(lambda conn: repository.load_machine(conn, name))
        assert found is not None
        return found

    async def accept(self, spec: JobSpec, key: str | None = None) -> Accepted:
        return await self.writer.write(lambda unit: self.submitter.store(unit, spec, key))

    async def submit(self, **more: Any) -> str:
        return (await self.accept(job_spec(**more))).job

    async def attempt(self, job: str) -> Attempt:
        return (await self.world(job)).attempts[-1]

    async def runner(self, job: str) -> FakeRunner:
        return FakeRunner(self.agents, (await self.attempt(job)).id)

    async def place(self) -> None:
        await self.writer.write(self.scheduler.place)

    async def host_up(self) -> str:
        """The machine that is intended is launched and its host makes contact."""
        while await self.performer.perform_due():
            pass
        machine = (await self.machine()).id
        await self.agents.desired(machine, 0, 0)
        return machine

    async def running(self, **more: Any) -> tuple[str, FakeRunner]:
        """A job whose process runs."""
        job = await self.submit(**more)
        await self.host_up()
        runner = await self.runner(job)
        await runner.say(Kind.STARTED, pid=77)
        return job, runner

    async def change_machine(self, machine: str, *facts: Any) -> Machine:
        def change(unit: Unit) -> Machine:
            found = repository.load_machine(unit.conn, machine)
            assert found is not None
            return unit.advance_machine(found, *facts)

        return await self.writer.write(change)

    async def count(self, table: Table) -> int:
        return len(await self.rows(table))


class FakeRunner:
    """A runner's voice: numbers its messages and signs them."""

    def __init__(self, agents: Agents, attempt: str, rank: int = 0) -> None:
        self._agents = agents
        self.attempt = attempt
        self.rank = rank
        self.n = 0

    async def say(self, kind: Kind, **data: object) -> int:
        return await self.send([self.message(kind, **data)])

    async def end(self, code: int = 0, **data: object) -> int:
        """Exit and end in one batch."""
        return await self.send(
            [self.message(Kind.EXITED, code=code, cause="exit", **data), self.message(Kind.ENDED)]
        )

    def message(self, kind: Kind, **data: object) -> Message:
        self.n += 1
        return Message(self.n, kind, 12.5, data)

    async def send(self, messages: Iterable[Message]) -> int:
        return await self._agents.ingest(self.attempt, self.rank, self.encoded(messages))

    def encoded(self, messages: Iterable[Message]) -> bytes:
        return encode_batch(Batch(self.attempt, self.rank, tuple(messages)), secret("attempt", self.attempt))

    async def log(self, n: int, start: int, text: bytes) -> None:
        """Stores a segment and says so."""
        lines, digest = text.count(b"\n"), sha(text)
        await self._agents.put_log(self.attempt, self.rank, n, start, lines, digest, text)
        await self.say(Kind.LOG, n=n, start=start, end=start + len(text), lines=lines, sha256=digest)


_idle: list[Db] = []
"""Emptied databases of earlier tests: one that has compiled its statements answers ten times sooner."""


async def empty_database() -> Db:
    if _idle:
        return _idle.pop()
    db = InlineDb()
    await db.write(t.metadata.create_all)
    return db


async def give_back(db: Db) -> None:
    def wipe(conn: Connection) -> None:
        for table in reversed(t.metadata.sorted_tables):
            conn.execute(delete(table))
        conn.execute(text("DELETE FROM sqlite_sequence"))

    try:
        await db.write(wipe)
    except DatabaseClosed:
        return
    _idle.append(db)


async def make_rig(scratch: Path, *others: FakeBackend) -> Rig:
    """A control plane over one fake place called `local`, and others if given."""
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
    rig = join(ports, clock, calls, {b.name: b for b in (backend, *others)}, scratch)
    await rig.places.refresh()
    await ports.db.write(lambda conn: rig.duties.renew(conn, clock.now()))
    return rig


def join(
    ports: Ports, clock: FakeClock, calls: InlineCalls, backends: dict[str, FakeBackend], scratch: Path
) -> Rig:
    feed, contacts, tails = Feed(), Contacts(), Tails()
    writer = Writer(ports, feed)
    places = Places(backends, ports.calls)
    duties = Duties(ports.worker)
    scheduler = Scheduler(places, ports.ids, DEPLOYMENT, duties)
    uploads = Uploads(ports, scratch)
    bundles = Bundles(ports, uploads, 1000)
    tools = Tools(ports, writer, feed, tails, contacts, KEY)
    return Rig(
        ports=ports,
        clock=clock,
        calls=calls,
        backend=backends["local"],
        backends=backends,
        feed=feed,
        writer=writer,
        places=places,
        duties=duties,
        scheduler=scheduler,
        submitter=Submit(places, scheduler, ports.ids),
        performer=Performer(ports, places, writer, Bearings(KEY, "http://agents")),
        poller=Poller(ports, places, writer),
        janitor=Janitor(ports, places, writer, DEPLOYMENT),
        contacts=contacts,
        sweep=Sweep(ports, writer, scheduler, contacts),
        tails=tails,
        logs=Logs(ports, tails),
        bundles=bundles,
        agents=Agents(tools, Ingest(scheduler), uploads, bundles),
        deployment=Deployment(DEPLOYMENT, KEY, "http://agents", scratch, 1000),
    )


async def other_worker(rig: Rig, worker: str) -> Rig:
    """A second process on the same database, with the same places."""
    ports = replace(rig.ports, worker=worker)
    twin = join(ports, rig.clock, rig.calls, rig.backends, rig.deployment.scratch)
    await twin.places.refresh()
    return twin


def service(rig: Rig) -> Control:
    """The facade over the same ports and places."""
    return Control(rig.ports, rig.backends, rig.deployment)


def job_spec(**more: Any) -> JobSpec:
    """A small job; `cpus`, `gpus` and `memory` are short for resources."""
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
