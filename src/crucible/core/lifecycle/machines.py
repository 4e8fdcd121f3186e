"""Transitions of one machine: intended, creating, up, releasing, gone.

A machine is `gone` only when its launch is settled and the place says so twice, or when the place refused to
make it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.states import MachineState
from crucible.core.lifecycle.values import Effect, EffectKind, Machine

SIGHTINGS = 2
"""Lists that must agree before absence is believed."""

_MAKING = frozenset({MachineState.INTENDED, MachineState.CREATING})
_WANTED = _MAKING | {MachineState.UP}


@dataclass(frozen=True)
class MachineStep:
    machine: Machine
    effects: tuple[Effect, ...] = ()


def advance_machine(machine: Machine, fact: f.MachineFact, now: float) -> MachineStep:
    """The machine after this fact. A machine that is gone stays gone, whatever is said."""
    if machine.state is MachineState.GONE:
        return MachineStep(machine)
    match fact:
        case f.LaunchAnswered(native_id):
            return MachineStep(_answered(machine, native_id))
        case f.LaunchRefused(why):
            return MachineStep(_gone(machine, now, detail=why))
        case f.LaunchLost(why):
            return MachineStep(replace(machine, detail=why))
        case f.FoundNothing():
            return MachineStep(_found_nothing(machine, now))
        case f.HostSeen():
            return MachineStep(_host_seen(machine, now))
        case f.SeenUp():
            return MachineStep(replace(machine, gone_sightings=0))
        case f.SeenHalted():
            return _halted(machine)
        case f.SeenGone(interrupted, detail):
            return MachineStep(_seen_gone(machine, now, interrupted, detail))
        case f.Unwanted(why):
            return _release(machine, why)


def _answered(machine: Machine, native_id: str) -> Machine:
    state = MachineState.CREATING if machine.state is MachineState.INTENDED else machine.state
    return replace(machine, state=state, native_id=native_id, launch_settled=True, detail="")


def _found_nothing(machine: Machine, now: float) -> Machine:
    """An empty find counts only after the launch can no longer take effect."""
    if machine.launch_settled or now < machine.launch_deadline:
        return machine
    counted = replace(machine, empty_finds=machine.empty_finds + 1)
    if counted.empty_finds < SIGHTINGS or machine.state is not MachineState.RELEASING:
        return counted
    return _gone(counted, now, detail="no machine was made")


def _host_seen(machine: Machine, now: float) -> Machine:
    seen = replace(machine, last_seen=now, gone_sightings=0, launch_settled=True)
    if machine.state not in _MAKING:
        return seen
    return replace(seen, state=MachineState.UP, up_at=now, detail="")


def _halted(machine: Machine) -> MachineStep:
    """The same launch call, replayed, starts the host again; it adopts what still runs."""
    back = replace(machine, gone_sightings=0)
    if machine.state is not MachineState.UP:
        return MachineStep(back)
    return MachineStep(replace(back, state=MachineState.CREATING), (Effect(EffectKind.LAUNCH, machine.id),))


def _seen_gone(machine: Machine, now: float, interrupted: bool, detail: str) -> Machine:
    if not machine.launch_settled:
        return machine
    counted = replace(machine, gone_sightings=machine.gone_sightings + 1)
    if counted.gone_sightings < SIGHTINGS:
        return counted
    return _gone(counted, now, interrupted=interrupted, detail=detail)


def _release(machine: Machine, why: str) -> MachineStep:
    if machine.state not in _WANTED:
        return MachineStep(machine)
    released = replace(machine, state=MachineState.RELEASING, detail=why)
    return MachineStep(released, (Effect(EffectKind.TERMINATE, machine.id),))


def _gone(machine: Machine, now: float, *, interrupted: bool = False, detail: str = "") -> Machine:
    return replace(
        machine,
        state=MachineState.GONE,
        launch_settled=True,
        gone_at=now,
        interrupted=interrupted,
        detail=detail,
    )
