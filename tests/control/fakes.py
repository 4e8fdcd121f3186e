"""Fakes of the ports and of a backend, with the faults of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from crucible.backends.base import (
    Capabilities,
    Finding,
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    Observation,
    PartlyUnreachable,
    Reach,
    Seen,
)
from crucible.control.runtime.ports import run_guarded
from crucible.core.compute.offers import Need, Node, Nodes, Offer
from crucible.core.compute.resources import Capacity, GiB
from crucible.core.errors import BadInput, RefusedByPolicy, TimedOut, Unreachable
from crucible.core.hooks import Reply
from crucible.core.ids import Prefix, make_id
from crucible.wire.documents.bootstrap import Bootstrap

T = TypeVar("T")

START = 1_700_000_000.0
DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 1, 1)
OTHER_DEPLOYMENT = make_id(Prefix.DEPLOYMENT, 2, 2)
CAPACITY = Capacity(cpus=4, memory_bytes=16 * GiB, gpus=(0, 1), gpu_memory_bytes=8 * GiB, gpu_name="T4")


class Killed(BaseException):
    """The process died in the middle of a call: nothing after it was done."""


class FakeClock:
    def __init__(self) -> None:
        self.time = START
        self.ahead = 0.0

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time - START - self.ahead

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def move(self, seconds: float) -> None:
        self.time += seconds

    def set(self, seconds: float) -> None:
        """Set the clock forward or back without passing time."""
        self.time += seconds
        self.ahead += seconds


class CountedIds:
    """IDs numbered in the order of requests."""

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
    """Run calls at once in the caller; calls of a lane in `hanging` succeed but time out."""

    def __init__(self) -> None:
        self.hanging: set[str] = set()
        self.lanes: list[str] = []

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        self.lanes.append(lane)
        result = run_guarded(lane, work)
        if lane in self.hanging:
            raise TimedOut(f"{lane} did not respond within {deadline:g} s.")
        return result

    async def close(self) -> None:
        self.lanes.append("closed")


class Gate(InlineCalls):
    """Calls of the lane `closed` do not return before the gate is opened."""

    def __init__(self, closed: str) -> None:
        super().__init__()
        self._closed = closed
        self.open = asyncio.Event()

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        if lane == self._closed:
            await self.open.wait()
        return await super().run(lane, work, deadline)


@dataclass
class Made:
    """A machine of the fake backend. `hidden` counts the lists that do not show it yet."""

    ref: MachineRef
    deployment: str
    seen: Seen = Seen.UP
    hidden: int = 0
    started_at: float | None = None


@dataclass
class FakeBackend:
    """A place. `answers` are consumed one per launch, `ends` one per termination, the last one stays.

    An answer is "ok", "refused" (nothing is made), "lost" (made, the answer is lost), "nothing" (not made,
    and no answer either), or an exception to raise.
    """

    name: str = "local"
    capabilities: Capabilities = Capabilities(reach=Reach.SAME_COMPUTER, capacity=Nodes(), bills=False, in_place=True)
    capacity: Capacity = CAPACITY
    rate: int = 0
    lag: int = 0
    answers: list[str | BaseException] = field(default_factory=lambda: ["ok"])
    ends: list[str | BaseException] = field(default_factory=lambda: ["ok"])
    down: Exception | None = None
    partly_down: bool = False
    """Whether some of its machines cannot be listed; those in `made` can."""
    made: dict[str, Made] = field(default_factory=dict)
    launches: list[LaunchCall] = field(default_factory=list)
    bootstraps: list[Bootstrap] = field(default_factory=list)
    finds: list[str] = field(default_factory=list)
    terminated: list[MachineRef] = field(default_factory=list)
    polls: int = 0

    def offers(self, need: Need) -> Sequence[Offer]:
        self._reach()
        counted = isinstance(self.capabilities.capacity, Nodes)
        node = Node(f"node-{self.name}", "this computer") if counted else None
        return [Offer(self.name, "here", "this computer", self.capacity, self.rate, node=node)]

    def call(self, order: MachineOrder) -> LaunchCall:
        return LaunchCall(self.name, order.machine, "make", {"deployment": order.deployment, "size": [1, 2.5, None]})

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        self._reach()
        self.launches.append(call)
        self.bootstraps.extend(bootstraps)
        answer = self._next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        if answer == "refused":
            raise LaunchRefused("There is no room.")
        if answer == "nothing":
            raise LaunchUnknown("No answer.")
        ref = self._make(call)
        if answer == "lost":
            raise LaunchUnknown("No answer.")
        return [ref]

    def find(self, token: str) -> Sequence[MachineRef]:
        self._reach()
        self.finds.append(token)
        made = self.made.get(token)
        return [made.ref] if made is not None and self._shown(made) and made.seen is not Seen.GONE else []

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        self._reach()
        self.polls += 1
        return [self._observe(ref) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        self._reach()
        self.terminated.append(ref)
        answer = self._next(self.ends)
        if isinstance(answer, BaseException):
            raise answer
        if answer == "ok" and ref.machine in self.made:
            self.made[ref.machine].seen = Seen.GONE

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        self._reach()
        ours = [m for m in self.made.values() if m.deployment == deployment and m.seen is not Seen.GONE]
        found = [made.ref for made in ours if self._shown(made)]
        if self.partly_down:
            raise PartlyUnreachable("Not every host answers.", found)
        return found

    def check(self) -> Sequence[Finding]:
        return []

    def add(self, machine: str, deployment: str = DEPLOYMENT) -> MachineRef:
        """Add a machine with this tag that Crucible did not launch."""
        ref = MachineRef(self.name, machine, f"i-{machine}", "here")
        self.made[machine] = Made(ref, deployment)
        return ref

    def show(self, machine: str, seen: Seen, started_at: float | None = None) -> None:
        self.made[machine].seen, self.made[machine].started_at = seen, started_at

    def _make(self, call: LaunchCall) -> MachineRef:
        if call.token not in self.made:
            ref = MachineRef(self.name, call.token, f"i-{call.token}", "here")
            self.made[call.token] = Made(ref, str(call.parameters["deployment"]), hidden=self.lag)
        self.made[call.token].seen = Seen.UP
        return self.made[call.token].ref

    def _observe(self, ref: MachineRef) -> Observation:
        made = self.made.get(ref.machine)
        seen = made.seen if made is not None and self._shown(made) else Seen.GONE
        return Observation(ref, seen, f"it is {seen.value}", made.started_at if made is not None else None)

    def _shown(self, made: Made) -> bool:
        made.hidden -= 1
        return made.hidden < 0

    def _reach(self) -> None:
        if self.down is not None:
            raise self.down

    @staticmethod
    def _next(answers: list[str | BaseException]) -> str | BaseException:
        return answers.pop(0) if len(answers) > 1 else answers[0]


@dataclass(frozen=True)
class Posted:
    url: str
    body: bytes
    headers: Mapping[str, str]


class FakePost:
    """The way out to receivers. Each takes what it is sent, or says what a test put into `replies` for it.

    A receiver in `hanging` does not answer until `released`; an address that begins with `http://10.` is ours.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.now = clock.now
        self.posted: list[Posted] = []
        self.replies: dict[str, list[Reply]] = {}
        self.hanging: set[str] = set()
        self.released = asyncio.Event()

    async def check(self, url: str) -> None:
        if not url.startswith("http"):
            raise BadInput(f"{url!r} is no address that can be called.", fix="Give a whole address.", field="url")
        if url.startswith("http://10."):
            raise RefusedByPolicy("It is not on the open internet.", fix="The setting webhook_hosts.")
        if "unknown" in url:
            raise Unreachable("The host is not known.", fix="Check the name.")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        self.posted.append(Posted(url, body, headers))
        if url in self.hanging:
            await self.released.wait()
        said = self.replies.get(url)
        return said.pop(0) if said else Reply(200, "thanks")
