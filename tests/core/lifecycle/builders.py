"""Small worlds in any phase, made by the same steps as real ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crucible.core.compute.resources import Allocation, Capacity, GiB, Resources
from crucible.core.job.spec import JobSpec, Retries
from crucible.core.lifecycle import (
    Attempt,
    Effect,
    Event,
    Fact,
    Job,
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
from crucible.core.lifecycle.advance import new_job
from crucible.core.lifecycle.silence import SETTLE_WINDOW
from crucible.core.scheduling.candidates import list_candidates

JOB = "job-1"
NOW = 1_000_000.0
CAPACITY = Capacity(cpus=4, memory_bytes=8 * GiB)
SHARE = Allocation(cpus=1, memory_bytes=GiB)


def new_world(retries: Retries | None = None, **more: Any) -> World:
    spec = JobSpec(command=("true",), retries=retries or Retries(), **more)
    return new_job(Job(JOB, spec, Resources(), created_at=NOW, candidates=list_candidates(spec))).world


def pool_machine(state: MachineState = MachineState.UP, id: str = "mch-pool") -> Machine:
    return _machine(id, "pool:local", state)


def own_machine(attempt: str, state: MachineState = MachineState.INTENDED) -> Machine:
    return _machine(f"mch-of-{attempt}", f"attempt:{attempt}", state)


def _machine(id: str, owner: str, state: MachineState) -> Machine:
    known = state is not MachineState.INTENDED
    return Machine(
        id=id,
        backend="local",
        owner=owner,
        call="{}",
        rate=3600,
        created_at=NOW,
        started_at=NOW,
        launch_deadline=NOW + 60,
        capacity=CAPACITY,
        state=state,
        native_id=f"native-{id}" if known else None,
        launch_settled=known,
        claimed_by=f"native-{id}" if state is MachineState.UP else None,
        up_at=NOW if state in (MachineState.UP, MachineState.RELEASING) else None,
        gone_at=NOW if state is MachineState.GONE else None,
    )


def next_attempt(world: World, *machines: Machine) -> Attempt:
    number = world.job.attempts + 1
    slots = tuple(Slot(rank, machine.id, SHARE) for rank, machine in enumerate(machines))
    job, backend = world.job, machines[0].backend
    return Attempt(f"att-{number}", job.id, number, job.generation, backend, slots, placed_at=NOW)


def placed_on(world: World, machine: Machine, *, new: bool = False) -> f.Placed:
    launched = frozenset({machine.id}) if new else frozenset[str]()
    return f.Placed(next_attempt(world, machine), (machine,), "it is free and it fits", launched)


def run(world: World, *facts: Fact, now: float = NOW) -> World:
    for fact in facts:
        world = advance(world, fact, now).world
    return world


def advance_by(machine: Machine, *facts: f.MachineFact, now: float = NOW) -> Machine:
    for fact in facts:
        machine = advance_machine(machine, fact, now).machine
    return machine


def run_step(world: World, *facts: Fact, now: float = NOW) -> Step:
    """The facts one after the other, with all that followed from them."""
    step = Step(world)
    for fact in facts:
        step = step.then(advance(step.world, fact, now))
    return step


def started(attempt: str = "att-1") -> f.RunnerStarted:
    return f.RunnerStarted(attempt, 0, pid=42)


def exited(reason: Reason, attempt: str = "att-1", code: int | None = None) -> f.RunnerExited:
    return f.RunnerExited(attempt, 0, reason, code)


def ended(attempt: str = "att-1") -> f.RunnerEnded:
    return f.RunnerEnded(attempt, 0)


def placed(world: World | None = None, machine: Machine | None = None) -> World:
    """A job whose next attempt has a slot on a pool machine that is up."""
    queued = world or new_world()
    return run(queued, placed_on(queued, machine or pool_machine()))


def launching(world: World | None = None) -> World:
    """A job whose next attempt waits for a machine of its own."""
    queued = world or new_world()
    machine = own_machine(f"att-{queued.job.attempts + 1}")
    return run(queued, placed_on(queued, machine, new=True))


def staging(world: World | None = None) -> World:
    here = placed(world)
    return run(here, f.RunnerStaging(live(here).id, "the environment"))


def running(world: World | None = None) -> World:
    here = placed(world)
    return run(here, started(live(here).id))


def saving(world: World | None = None) -> World:
    here = running(world)
    return run(here, exited(Reason.COMPLETED, live(here).id, code=0))


def finish(world: World, reason: Reason, code: int | None = None, now: float = NOW) -> Step:
    """The live attempt's process exits for this reason and its runner ends."""
    attempt = live(world).id
    return run_step(world, exited(reason, attempt, code), ended(attempt), now=now)


def with_machine_gone(world: World, machine: str, *, interrupted: bool = False, now: float = NOW) -> World:
    """The place says twice that it is gone."""
    known = replace(world.machines[machine], launch_settled=True)
    for _ in range(2):
        known = advance_machine(known, f.SeenGone(interrupted, "the place says so"), now).machine
    return world.with_machine(known)


def lose_machine(world: World, *, interrupted: bool = False, now: float = NOW) -> Step:
    """The live attempt's first machine is gone and the settle window has passed."""
    gone = with_machine_gone(world, live(world).slots[0].machine, interrupted=interrupted, now=now)
    return run_step(gone, f.Tick(), now=now + SETTLE_WINDOW)


def live(world: World) -> Attempt:
    attempt = world.live
    assert attempt is not None, "there is a live attempt"
    return attempt


def types(events: Iterable[Event]) -> list[str]:
    return [event.type for event in events]


def wanted(effects: Iterable[Effect]) -> list[tuple[str, str]]:
    return [(effect.kind.value, effect.machine) for effect in effects]
