"""Transitions of one machine: intended, creating, up, releasing, gone.

A machine is `gone` only when its launch is settled and the backend twice does not list it, or when the backend refused
the only call that was ever sent for it. For a machine that was up before, a refused relaunch proves nothing: what the
backend lists decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.core.job.states import MachineState
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.values import Effect, EffectKind, Machine

SIGHTINGS = 2
"""Lists without a machine that are needed before it counts as absent."""

RELAUNCH = 30.0
"""Seconds that a relaunched host has to make contact before it is launched again."""

_MAKING = frozenset({MachineState.INTENDED, MachineState.CREATING})


@dataclass(frozen=True)
class MachineStep:
    machine: Machine
    effects: tuple[Effect, ...] = ()


def advance_machine(machine: Machine, fact: f.MachineFact, now: float) -> MachineStep:
    """Return the machine after this fact, and the effects. A machine that is gone stays gone."""
    if machine.state is MachineState.GONE:
        return MachineStep(machine)
    match fact:
        case f.LaunchSent(until):
            return MachineStep(_sent(machine, until))
        case f.LaunchAnswered(native_id):
            return MachineStep(_answered(machine, native_id))
        case f.LaunchRefused(why, only_call):
            return _refused(machine, why, only_call, now)
        case f.LaunchLost(why, until):
            return MachineStep(_lost(machine, why, until))
        case f.FoundNothing(asked_at):
            return MachineStep(_found_nothing(machine, now, now if asked_at is None else asked_at))
        case f.HostSeen():
            return MachineStep(_host_seen(machine, now))
        case f.SeenUp():
            return MachineStep(_there(machine))
        case f.SeenHalted():
            return _halted(machine, now)
        case f.SeenGone(interrupted, detail, absent_for):
            return MachineStep(_seen_gone(machine, now, absent_for, interrupted, detail))
        case f.Unwanted(why):
            return _release(machine, why)


def _sent(machine: Machine, until: float) -> Machine:
    """Record that a launch call is about to be made: what was not found earlier may still appear."""
    return replace(machine, launch_deadline=max(machine.launch_deadline, until), empty_finds=0)


def _lost(machine: Machine, why: str, until: float | None) -> Machine:
    deadline = machine.launch_deadline if until is None else min(machine.launch_deadline, until)
    return replace(machine, empty_finds=0, detail=why, launch_deadline=deadline)


def _answered(machine: Machine, native_id: str) -> Machine:
    """Record the provider's id. A host's claim proves the id; an answer naming another one is a duplicate machine."""
    state = MachineState.CREATING if machine.state is MachineState.INTENDED else machine.state
    proven = machine.claimed_by or native_id
    return _relaunched(replace(machine, state=state, native_id=proven, launch_settled=True, detail=""))


def _relaunched(machine: Machine) -> Machine:
    """Mark a machine that was up before as up again, so that it is relaunched if it halts again."""
    again = machine.up_at is not None and machine.state is MachineState.CREATING
    return replace(machine, state=MachineState.UP) if again else machine


def _refused(machine: Machine, why: str, only_call: bool, now: float) -> MachineStep:
    """Record a refusal; a machine that was up or claimed exists, whatever a further call is answered.

    An earlier call may have made a machine, or may still be on its way to the provider: then the machine is released
    like any other, and searched for until that call can no longer take effect.
    """
    if machine.up_at is not None or machine.claimed_by is not None:
        return MachineStep(_relaunched(replace(machine, detail=why)))
    if only_call and machine.native_id is None:
        return MachineStep(_gone(machine, now, why))
    return _release(machine, why)


def _found_nothing(machine: Machine, now: float, asked_at: float) -> Machine:
    """Count an empty search, if it was sent after the launch could no longer take effect."""
    if machine.launch_settled or asked_at < machine.launch_deadline:
        return machine
    counted = replace(machine, empty_finds=machine.empty_finds + 1)
    if counted.empty_finds < SIGHTINGS or machine.state is not MachineState.RELEASING:
        return counted
    return _gone(counted, now, "no machine was made")


def _host_seen(machine: Machine, now: float) -> Machine:
    """Record contact by the host; its claim names the provider's id, which settles the launch.

    A launch that is settled has no deadline ahead any more, so that its claim is not repeated (until a relaunch).
    """
    native_id = machine.claimed_by or machine.native_id
    settled = machine.launch_settled or native_id is not None
    deadline = min(machine.launch_deadline, now) if settled else machine.launch_deadline
    there = replace(_there(machine), native_id=native_id, launch_settled=settled, launch_deadline=deadline)
    seen = replace(there, last_seen=now, empty_finds=0)
    if machine.state not in _MAKING:
        return seen
    return replace(seen, state=MachineState.UP, up_at=machine.up_at or now, detail="")


def _halted(machine: Machine, now: float) -> MachineStep:
    """Replay the launch call, which restarts the host; the host adopts what still runs.

    A host that never came gets another call once the last one can no longer take effect.
    """
    there = _there(machine)
    never_came = machine.state is MachineState.CREATING and machine.launch_settled and now >= machine.launch_deadline
    if machine.state is not MachineState.UP and not never_came:
        return MachineStep(there)
    again = replace(there, state=MachineState.CREATING, launch_deadline=max(machine.launch_deadline, now + RELAUNCH))
    return MachineStep(again, (Effect(EffectKind.LAUNCH, machine.id),))


def _seen_gone(machine: Machine, now: float, absent_for: float | None, interrupted: bool, detail: str) -> Machine:
    """Count a missing machine; it is gone once two lists agree, a settle window apart."""
    if not machine.launch_settled:
        return machine
    since = machine.gone_since if machine.gone_since is not None else now
    sightings, taken_back = machine.gone_sightings + 1, machine.interrupted or interrupted
    counted = replace(machine, gone_sightings=sightings, gone_since=since, interrupted=taken_back)
    lasted = now - since if absent_for is None else absent_for
    believed = sightings >= SIGHTINGS and lasted >= machine.settle_window
    return _gone(counted, now, detail) if believed else counted


def _there(machine: Machine) -> Machine:
    return replace(machine, gone_sightings=0, gone_since=None, interrupted=False)


def _release(machine: Machine, why: str) -> MachineStep:
    if not machine.wanted:
        return MachineStep(machine)
    released = replace(machine, state=MachineState.RELEASING, detail=why)
    return MachineStep(released, (Effect(EffectKind.TERMINATE, machine.id),))


def _gone(machine: Machine, now: float, detail: str) -> Machine:
    return replace(machine, state=MachineState.GONE, launch_settled=True, gone_at=now, detail=detail)
