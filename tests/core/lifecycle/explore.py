"""A walk through every state that a job with its machines can come to, one act at a time.

Breadth first. A world is walked on when it is new in one of its outlines: the states of job, attempt and machine
together, and beside them each thing that rules ask for. What every step did goes into the books.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from tests.core.lifecycle.acts import (
    ACTS,
    LAUNCH_SECONDS,
    MACHINE_FACTS,
    PASSES,
    Claim,
    Contact,
    Pass,
    Say,
    See,
    claim_of,
    contacted,
    own_machine,
    queueing_machine,
)
from tests.core.lifecycle.builders import NOW
from tests.core.lifecycle.moves import Books, Path

from crucible.core.compute.resources import Resources
from crucible.core.job.spec import JobSpec, Retries
from crucible.core.lifecycle import (
    Attempt,
    Job,
    JobState,
    Machine,
    MachineState,
    Reason,
    Slot,
    Step,
    World,
    advance,
    advance_machine,
)
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import REFUSALS, SUSPENSIONS, UNBEGUN_TRIES
from crucible.core.lifecycle.reasons import Retry
from crucible.core.lifecycle.silence import SETTLE_WINDOW, STOP_SECONDS
from crucible.core.scheduling.candidates import list_candidates

RETRIES = Retries(interruption=10, infrastructure=10, user=10)
SPENT = {
    Retry.INTERRUPTION: 10,
    Retry.INFRASTRUCTURE: 10,
    Retry.USER: 10,
    Retry.UNBEGUN: UNBEGUN_TRIES,
    Retry.REFUSAL: REFUSALS,
    Retry.SUSPENSION: SUSPENSIONS,
}
"""All tries used up."""

AGES = (45.0, 900.0)
"""Seconds of silence after which a rule may judge otherwise: unreachable, beyond its lease."""


def first_job(name: str = "job-1", **more: object) -> World:
    spec = JobSpec(command=("true",), retries=RETRIES, fallback=("elsewhere",), max_wait_seconds=500.0)
    return World(replace(Job(name, spec, Resources(), created_at=NOW, candidates=list_candidates(spec)), **more))  # type: ignore[arg-type]


STARTS: dict[str, Callable[[], World]] = {
    "new": first_job,
    "blocked": lambda: first_job(state=JobState.BLOCKED),
    "all tries used up": lambda: first_job(used=SPENT),
}
"""Where walks begin. No fact leads to `blocked`: a job would be made so."""


@dataclass(frozen=True)
class Node:
    """A world at a time, and how it came about."""

    world: World
    now: float
    path: Path


@dataclass
class Walk:
    """What was seen on the way. `vain`: facts that should have changed nothing and did."""

    books: Books = field(default_factory=Books)
    states: set[tuple[str, str, str]] = field(default_factory=set)
    pairs: int = 0
    vain: list[str] = field(default_factory=list)
    check: Callable[[World, Step], None] = lambda before, step: None

    def jobs(self) -> None:
        """Tells every fact in every state that can be reached."""
        queue = deque(Node(make(), NOW, (name,)) for name, make in STARTS.items())
        known: set[Hashable] = set()
        while queue:
            node = queue.popleft()
            self.states.add(states_of(node.world))
            for found in self._neighbours(node):
                sides = frozenset(_outlines(found.world, found.now))
                if not sides <= known:
                    known |= sides
                    queue.append(found)

    def machines(self) -> None:
        """Tells every fact to a machine in every state it can come to, at a place that is believed slowly."""
        firsts = (own_machine(first_job(), NOW), queueing_machine(first_job(), NOW))
        queue: deque[tuple[Machine, float, Path]] = deque(
            (replace(first, settle_window=10.0), NOW, ("intended",)) for first in firsts
        )
        known: set[Hashable] = set()
        while queue:
            for found in self._after(*queue.popleft()):
                outline = _fine_outline(found[0], found[1])
                if outline not in known:
                    known.add(outline)
                    queue.append(found)

    def _neighbours(self, node: Node) -> Iterator[Node]:
        for act in ACTS:
            path = (*node.path, act.name)
            if isinstance(act, Say):
                yield Node(self._say(node, act, path), node.now, path)
            elif isinstance(act, Pass):
                yield Node(node.world, node.now + act.seconds, path)
            else:
                yield Node(self._outside(node, act, path), node.now, path)

    def _say(self, node: Node, act: Say, path: Path) -> World:
        fact = act.make(node.world, node.now)
        step = advance(node.world, fact, node.now)
        self.pairs += 1
        self.books.told(node.world, fact, step, lambda: path)
        self.check(node.world, step)
        if act.vain and not _unmoved(node.world, step):
            self.vain.append(" > ".join(path))
        return step.world

    def _outside(self, node: Node, act: See | Claim | Contact, path: Path) -> World:
        """What happens without the job being told."""
        world = node.world
        if isinstance(act, Contact):
            return contacted(world, node.now)
        machines = machines_of(world)
        for machine in machines[-1:] if isinstance(act, See) and act.last else machines:
            facts = act.facts if isinstance(act, See) else (claim_of(machine),)
            world = world.with_machine(self._see(machine, facts, node.now, path))
        return world

    def _see(self, machine: Machine, facts: tuple[f.MachineFact, ...], now: float, path: Path) -> Machine:
        for fact in facts:
            step = advance_machine(machine, fact, now)
            self.pairs += 1
            self.books.shown(machine, fact, step, lambda: path)
            machine = step.machine
        return machine

    def _after(self, machine: Machine, now: float, path: Path) -> Iterator[tuple[Machine, float, Path]]:
        for fact in (make(now) for make in MACHINE_FACTS):
            told = (*path, type(fact).__name__)
            yield self._see(machine, (fact,), now, told), now, told
        for act in (*PASSES, Pass(LAUNCH_SECONDS)):
            yield machine, now + act.seconds, (*path, act.name)


def machines_of(world: World) -> list[Machine]:
    """Those of the live attempt."""
    names = dict.fromkeys(slot.machine for slot in world.live.slots) if world.live else {}
    return [world.machines[name] for name in names]


def states_of(world: World) -> tuple[str, str, str]:
    """Of the job, of its live attempt and of that one's first machine."""
    live = world.live
    if live is None:
        return world.job.state.value, "none", "none"
    return world.job.state.value, live.state.value, world.machines[live.slots[0].machine].state.value


def _unmoved(before: World, step: Step) -> bool:
    """Whether nothing followed, but for a phase that shows what its machines have become since."""
    same = replace(step.world.job, state=before.job.state, due_at=before.job.due_at) == before.job
    quiet = not (step.events or step.effects or step.touched)
    return same and quiet and step.world.attempts == before.attempts and step.world.machines == before.machines


def _outlines(world: World, now: float) -> Iterator[Hashable]:
    job, attempt = world.job, world.live
    spent = job.used.get(Retry.INFRASTRUCTURE, 0) >= SPENT[Retry.INFRASTRUCTURE]
    if attempt is None:
        yield job.state, job.desired, bool(world.attempts), job.backend, spent
        return
    both = (job.state, attempt.state)
    machine = world.machines[attempt.slots[0].machine]
    own, noticed, silent = machine.belongs_to(attempt), attempt.noticed_at is not None, attempt.last_seen is None
    stopping = attempt.stopping_since is not None
    settled = machine.gone_at is not None and now >= max(machine.gone_at, attempt.last_seen or 0.0) + SETTLE_WINDOW
    age, completed = _age(attempt.last_seen, now), attempt.reason is Reason.COMPLETED
    yield "states", both, machine.state, own, spent, settled
    yield "report", attempt.state, _kind(attempt.reason), job.desired, spent, machine.state, settled
    yield "silence", both, age, job.conditions, noticed, machine.state is MachineState.UP
    yield "end", both, age, job.conditions, completed, spent, own and machine.wanted
    if attempt.is_gang:
        ranks = tuple(_rank(world, slot) for slot in attempt.slots)
        yield "ranks", attempt.state, ranks, stopping, settled, attempt.reason in (Reason.REFUSED, Reason.NOT_BEGUN)
        yield "silent ranks", both, age, job.conditions
    if stopping:
        yield "stop", both, _kind(attempt.reason), machine.state, own, settled, _overdue(attempt, now)
    yield "machine", attempt.state, own, _outline(machine, now)
    yield "queue", both, machine.state, machine.withdrawing, _waited(machine, now), bool(job.waiting), settled
    if not machine.alive and attempt.reason is None:
        why = (noticed, silent, machine.interrupted, _outlived(machine), machine.up_at is None)
        yield "lost", attempt.state, own, why, settled


def _rank(world: World, slot: Slot) -> Hashable:
    """How far the machine of a rank has come, and whether the rank has ended."""
    machine = world.machines[slot.machine]
    far = (machine.state is MachineState.UP, machine.launch_settled) if machine.wanted else machine.native_id is None
    return machine.alive, machine.wanted, far, slot.ended, slot.reason is None


def _overdue(attempt: Attempt, now: float) -> bool:
    return attempt.stopping_since is not None and now >= attempt.stopping_since + STOP_SECONDS


def _waited(machine: Machine, now: float) -> bool:
    return machine.queued_at is not None and now >= machine.queued_at + 500.0


def _outline(machine: Machine, now: float) -> Hashable:
    over = tuple(at is not None and now >= at for at in (machine.host_due, machine.ends_at))
    known = machine.native_id is None, machine.claimed_by is None, machine.up_at is None, machine.started_at is None
    return machine.state, over, known, machine.withdrawing


def _fine_outline(machine: Machine, now: float) -> Hashable:
    """What the rules of a machine alone ask for."""
    since = machine.gone_since is not None and now >= machine.gone_since + machine.settle_window
    counts = (min(machine.empty_finds, 2), min(machine.gone_sightings, 2), since)
    launch = (machine.launch_settled, now >= machine.launch_deadline)
    return _outline(machine, now), launch, machine.interrupted, counts


def _outlived(machine: Machine) -> bool:
    return machine.ends_at is not None and machine.gone_at is not None and machine.gone_at >= machine.ends_at


def _kind(reason: Reason | None) -> Hashable:
    """Reasons that lead to the same are one."""
    return reason and (reason.policy.outcome, reason.policy.retry)


def _age(at: float | None, now: float) -> int | None:
    return None if at is None else sum(now - at >= age for age in AGES)
