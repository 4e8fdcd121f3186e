"""Everything that can happen to a job and its machines, by name: what a walk or a random history is made of.

Acts depend on nothing but the world and the time they meet, so that a list of their names can be told again, in
memory or on a database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.core.lifecycle.builders import CAPACITY, SHARE

from crucible.core.lifecycle import Attempt, Fact, Machine, MachineState, Reason, Slot, World
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.reasons import Retry

PLACE = "local"
LAUNCH_SECONDS = 60.0
HOST_SECONDS = 600.0
LEASE_SECONDS = 600.0
LIFE_SECONDS = 50_000.0


@dataclass(frozen=True)
class Say:
    """A fact about the job. `vain`: it speaks of what is over or of another's, and must change nothing."""

    name: str
    make: Callable[[World, float], Fact]
    vain: bool = False


@dataclass(frozen=True)
class See:
    """Facts about every machine of the live attempt, one after the other; the job is not told. `last`: of one alone."""

    name: str
    facts: tuple[f.MachineFact, ...]
    last: bool = False


@dataclass(frozen=True)
class Claim:
    """A host claims the live attempt's machines, if nobody has."""

    name: str = "a host claims it"


@dataclass(frozen=True)
class Contact:
    """That the runner was heard is stored with others, without a decision."""

    name: str = "contact is stored"


@dataclass(frozen=True)
class Pass:
    """Time passes and nobody says anything."""

    seconds: float

    @property
    def name(self) -> str:
        return f"{self.seconds:g} s pass"


Act = Say | See | Claim | Contact | Pass


def attempt_for(world: World, *machines: Machine, now: float) -> Attempt:
    """One rank on each machine."""
    job = world.job
    slots = tuple(Slot(rank, machine.id, SHARE) for rank, machine in enumerate(machines))
    name = f"{job.id}-att-{job.attempts + 1}"
    return Attempt(name, job.id, job.attempts + 1, job.generation, PLACE, slots, placed_at=now)


def own_machine(world: World, now: float) -> Machine:
    """One that the next attempt would have for itself: it bills, has a lease and an end."""
    number = world.job.attempts + 1
    machine = _machine(f"{world.job.id}-own-{number}", f"attempt:{world.job.id}-att-{number}", now)
    return replace(machine, lease_seconds=LEASE_SECONDS, host_due=now + HOST_SECONDS, ends_at=now + LIFE_SECONDS)


def queueing_machine(world: World, now: float) -> Machine:
    """One whose provider may let it wait: its clocks run from its start."""
    machine = replace(own_machine(world, now), started_at=None, ends_at=None)
    return replace(machine, host_seconds=HOST_SECONDS, life_seconds=LIFE_SECONDS)


def gang(world: World, now: float) -> tuple[Machine, ...]:
    """Two of its own, of which each is made by a call of its own."""
    first = own_machine(world, now)
    return first, replace(first, id=f"{first.id}-b")


def pool_machine(world: World, now: float, state: MachineState) -> Machine:
    """One that several attempts may share, as far as its launch has come."""
    machine = _machine(f"{world.job.id}-pool-{world.job.attempts + 1}", f"pool:{PLACE}", now)
    if state is MachineState.INTENDED:
        return machine
    known = replace(machine, state=state, native_id=f"i-{machine.id}", launch_settled=True)
    if state is MachineState.CREATING:
        return known
    return replace(known, claimed_by=known.native_id, up_at=now)


def _machine(name: str, owner: str, now: float) -> Machine:
    return Machine(
        id=name,
        backend=PLACE,
        owner=owner,
        call="{}",
        rate=3_600_000,
        created_at=now,
        started_at=now,
        launch_deadline=now + LAUNCH_SECONDS,
        capacity=CAPACITY,
    )


def claim_of(machine: Machine) -> f.HostClaimed:
    return f.HostClaimed(machine.native_id or f"i-{machine.id}")


def contacted(world: World, now: float) -> World:
    return world.with_attempt(replace(world.live, last_seen=now)) if world.live else world


def _placed_new(*machines: Machine, world: World, now: float) -> Fact:
    attempt = attempt_for(world, *machines, now=now)
    return f.Placed(attempt, machines, "it is the cheapest", frozenset(machine.id for machine in machines))


def _on_pool(state: MachineState) -> Callable[[World, float], Fact]:
    def placed(world: World, now: float) -> Fact:
        machine = pool_machine(world, now, state)
        new = frozenset({machine.id}) if state is MachineState.INTENDED else frozenset[str]()
        return f.Placed(attempt_for(world, machine, now=now), (machine,), "it is free and it fits", new)

    return placed


def _placed_late(world: World, now: float) -> Fact:
    """Decided before a cancel, or on what another worker has decided since."""
    machine = pool_machine(world, now, MachineState.UP)
    attempt = attempt_for(world, machine, now=now)
    return f.Placed(replace(attempt, generation=attempt.generation - 1), (machine,), "it was free")


def _placed_again(world: World, now: float) -> Fact:
    machine = pool_machine(world, now, MachineState.UP)
    attempt = attempt_for(world, machine, now=now)
    return f.Placed(replace(attempt, number=attempt.number - 1), (machine,), "it was free")


def _of_live(make: Callable[[str], Fact]) -> Callable[[World, float], Fact]:
    """About the live attempt; where there is none, about the one that would be next."""
    return lambda world, now: make(world.live.id if world.live else f"{world.job.id}-att-{world.job.attempts + 1}")


def _of_another(make: Callable[[str], Fact]) -> Callable[[World, float], Fact]:
    """About the attempt before, or one of another job."""

    def made(world: World, now: float) -> Fact:
        over = [attempt.id for attempt in world.attempts if not attempt.live]
        return make(over[-1] if over else "att-of-another")

    return made


def _plain(fact: Fact) -> Callable[[World, float], Fact]:
    return lambda world, now: fact


_REPORTS: dict[str, Callable[[str], Fact]] = {
    "RunnerContacted": f.RunnerContacted,
    "StopAttempt": lambda attempt: f.StopAttempt(attempt, "another job needs its machine"),
    "InterruptionNoticed": lambda attempt: f.InterruptionNoticed(attempt, 30.0),
    "RunnerStaging": lambda attempt: f.RunnerStaging(attempt, "the environment"),
    "RunnerStarted": lambda attempt: f.RunnerStarted(attempt, 0, 42),
    "RunnerEnded": lambda attempt: f.RunnerEnded(attempt, 0),
    "RunnerEnded, outputs missing": lambda attempt: f.RunnerEnded(attempt, 0, False, "the store is full"),
    "RunnerEnded, rank 1": lambda attempt: f.RunnerEnded(attempt, 1),
}


EXITS = tuple(
    {(r.policy.outcome, r.policy.retry): r for r in reversed(Reason) if r.policy.retry is not Retry.FREE}.values()
)
"""Of reasons that a runner may report and that lead to the same, one."""


def _exit(reason: Reason, rank: int = 0) -> Callable[[str], Fact]:
    code = 0 if reason is Reason.COMPLETED else 1
    return lambda attempt: f.RunnerExited(attempt, rank, reason, code, None, "its last line")


SAYINGS: tuple[Say, ...] = (
    Say("Planned", _plain(f.Planned())),
    Say("Waits", _plain(f.Waits("for a GPU"))),
    Say("Placed, a machine of its own", lambda w, now: _placed_new(own_machine(w, now), world=w, now=now)),
    Say("Placed, a machine that may wait", lambda w, now: _placed_new(queueing_machine(w, now), world=w, now=now)),
    Say("Placed, a gang", lambda w, now: _placed_new(*gang(w, now), world=w, now=now)),
    Say("Placed, a shared machine to be made", _on_pool(MachineState.INTENDED)),
    Say("Placed, a shared machine being made", _on_pool(MachineState.CREATING)),
    Say("Placed, a shared machine", _on_pool(MachineState.UP)),
    Say("Placed, a machine on its way out", _on_pool(MachineState.RELEASING), vain=True),
    Say("Placed, before a cancel", _placed_late, vain=True),
    Say("Placed, a second time", _placed_again, vain=True),
    Say("NothingSaved", _plain(f.NothingSaved())),
    Say("CancelRequested", _plain(f.CancelRequested())),
    Say("ResumeRequested", _plain(f.ResumeRequested())),
    Say("ResumeRequested, chosen", _plain(f.ResumeRequested("ckp-1", "elsewhere"))),
    Say("CheckpointRequested", _plain(f.CheckpointRequested())),
    Say("Tick", _plain(f.Tick())),
    Say("Tick, listening since now", lambda world, now: f.Tick(now)),
    Say("Tick, it may run elsewhere", _plain(f.Tick(has_alternative=True))),
    *(Say(name, _of_live(make)) for name, make in _REPORTS.items()),
    *(Say(f"RunnerExited, {reason}", _of_live(_exit(reason))) for reason in EXITS),
    Say("RunnerExited, completed, rank 1", _of_live(_exit(Reason.COMPLETED, 1))),
    *(Say(f"{name}, another's", _of_another(make), vain=True) for name, make in _REPORTS.items() if "," not in name),
    Say("RunnerExited, another's", _of_another(_exit(Reason.COMPLETED)), vain=True),
)

SIGHTINGS: tuple[See, ...] = (
    See("its launch is answered", (f.LaunchAnswered("i-1"),)),
    See("its launch is refused", (f.LaunchRefused("no room"),)),
    See("its second launch is refused", (f.LaunchRefused("no room", only_call=False),)),
    See("its host speaks", (f.HostSeen(),)),
    See("it is listed, its host is not", (f.SeenHalted(),)),
    See("it waits at its provider", (f.SeenQueued("all nodes are busy"),)),
    See("it runs at its provider", (f.SeenUp(),)),
    See("it is withdrawn", (f.Withdrawn(),)),
    See("it was not withdrawn in time", (f.AlreadyStarted(),)),
    See("one of its machines is gone", (f.SeenGone(), f.SeenGone()), last=True),
    See("one of its launches is refused", (f.LaunchRefused("no room"),), last=True),
    See("one of its hosts speaks", (f.HostSeen(),), last=True),
    See("it is gone by two lists", (f.SeenGone(), f.SeenGone())),
    See("it is taken back, by two lists", (f.SeenGone(True), f.SeenGone(True))),
    See("two finds are empty", (f.FoundNothing(), f.FoundNothing())),
    See("it is declared lost", (f.DeclaredLost("an operator declared it lost"),)),
    See("nobody wants it", (f.Unwanted("a person ended it"),)),
)

PASSES = (Pass(6.0), Pass(60.0), Pass(1000.0), Pass(60_000.0))

ACTS: tuple[Act, ...] = (*SAYINGS, *SIGHTINGS, Claim(), Contact(), *PASSES)
BY_NAME = {act.name: act for act in ACTS}

MACHINE_FACTS: tuple[Callable[[float], f.MachineFact], ...] = (
    lambda now: f.LaunchSent(now + LAUNCH_SECONDS),
    lambda now: f.LaunchAnswered("i-1"),
    lambda now: f.LaunchAnswered("i-1", now - 1),
    lambda now: f.LaunchAnswered("i-of-a-double"),
    lambda now: f.LaunchRefused("no room"),
    lambda now: f.LaunchLost("no answer"),
    lambda now: f.LaunchLost("no answer", now),
    lambda now: f.FoundNothing(),
    lambda now: f.HostClaimed("i-1"),
    lambda now: f.HostSeen(),
    lambda now: f.SeenQueued("all nodes are busy"),
    lambda now: f.SeenUp(),
    lambda now: f.SeenUp(now - 30),
    lambda now: f.SeenHalted(),
    lambda now: f.SeenGone(),
    lambda now: f.SeenGone(True, "taken back"),
    lambda now: f.SeenGone(started_at=now - 30),
    lambda now: f.DeclaredLost("an operator declared it lost"),
    lambda now: f.Withdraw("it waited for too long"),
    lambda now: f.Withdrawn(),
    lambda now: f.AlreadyStarted(),
    lambda now: f.Unwanted("its attempt has ended"),
)
"""Every fact about a machine, as it may come at a time."""
