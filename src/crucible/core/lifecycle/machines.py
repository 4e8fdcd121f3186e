"""Transitions of one machine: intended, creating, queued, up, releasing, gone.

The clocks of a machine run from its placement. If its provider may let it wait in a queue, they run from its start: the
time that the provider reports, else the first sign that it has started.

A machine is `gone` only when its launch is settled and the backend twice does not list it, when the backend refused
the only call that was ever sent for it, or when an operator declares it lost. For a machine that was up before, a
refused relaunch proves nothing: what the backend lists decides.
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

MAKING = frozenset({MachineState.INTENDED, MachineState.CREATING, MachineState.QUEUED})
"""The states of machines whose host has not made contact."""


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
            return MachineStep(_sent(machine, until, now))
        case f.LaunchAnswered(native_id, sent_at):
            return MachineStep(_answered(machine, native_id, sent_at))
        case f.LaunchRefused(why, only_call):
            return _refused(machine, why, only_call, now)
        case f.LaunchLost(why, until):
            return MachineStep(_lost(machine, why, until))
        case f.FoundNothing(asked_at):
            return MachineStep(_found_nothing(machine, now, now if asked_at is None else asked_at))
        case f.HostClaimed(native_id):
            return MachineStep(_claimed(machine, native_id, now))
        case f.HostSeen():
            return MachineStep(_host_seen(machine, now))
        case f.SeenQueued(detail):
            return MachineStep(_queued(machine, detail, now))
        case f.SeenUp(started_at):
            return MachineStep(_start(_present(machine), now, started_at))
        case f.SeenHalted(started_at):
            return _halted(_start(machine, now, started_at), now)
        case f.SeenGone(interrupted, detail, absent_for, started_at):
            ran = machine if started_at is None else _start(machine, now, started_at)
            return MachineStep(_seen_gone(ran, now, absent_for, interrupted, detail))
        case f.DeclaredLost(why):
            return MachineStep(_gone(machine, now, why))
        case f.Withdraw(why):
            return _withdraw(machine, why)
        case f.Withdrawn():
            return _release(machine, machine.detail) if machine.withdrawing else MachineStep(machine)
        case f.AlreadyStarted():
            return MachineStep(_start(machine, now) if machine.withdrawing else machine)
        case f.Unwanted(why):
            return _release(machine, why)


def _sent(machine: Machine, until: float, now: float) -> Machine:
    """Record that a launch call is about to be made: what was not found earlier may still appear."""
    launched_at = now if machine.launched_at is None else machine.launched_at
    deadline = max(machine.launch_deadline, until)
    return replace(machine, launch_deadline=deadline, launched_at=launched_at, empty_finds=0)


def _lost(machine: Machine, why: str, until: float | None) -> Machine:
    deadline = machine.launch_deadline if until is None else min(machine.launch_deadline, until)
    return replace(machine, empty_finds=0, detail=why, launch_deadline=deadline)


def _answered(machine: Machine, native_id: str, sent_at: float | None) -> Machine:
    """Record the provider's id. A host's claim proves the id; an answer naming another one is a duplicate machine."""
    if machine.native_id is None and sent_at is not None:
        machine = replace(machine, launched_at=sent_at)
    if machine.started_at is None:
        # It has its place in the provider's queue now: its host is due once it starts.
        machine = replace(machine, host_due=None)
    if machine.state is MachineState.INTENDED:
        machine = replace(machine, state=MachineState.CREATING)
    detail = machine.detail if machine.state is MachineState.QUEUED else ""
    proven = machine.claimed_by or native_id
    return _relaunched(replace(machine, native_id=proven, launch_settled=True, detail=detail))


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


def _claimed(machine: Machine, native_id: str, now: float) -> Machine:
    if not machine.wanted or machine.claimed_by is not None:
        return machine
    return _start(replace(machine, claimed_by=native_id), now)


def _host_seen(machine: Machine, now: float) -> Machine:
    """Record contact by the host; its claim names the provider's id, which settles the launch.

    A launch that is settled has no deadline ahead any more, so that its claim is not repeated (until a relaunch).
    """
    native_id = machine.claimed_by or machine.native_id
    settled = machine.launch_settled or native_id is not None
    deadline = min(machine.launch_deadline, now) if settled else machine.launch_deadline
    present = replace(_present(machine), native_id=native_id, launch_settled=settled, launch_deadline=deadline)
    seen = replace(_start(present, now), last_seen=now, empty_finds=0)
    if machine.state not in MAKING:
        return seen
    return replace(seen, state=MachineState.UP, up_at=machine.up_at or now, detail="")


def _halted(machine: Machine, now: float) -> MachineStep:
    """Replay the launch call, which restarts the host; the host adopts what still runs.

    A host that never came gets another call once the last one can no longer take effect.
    """
    present = _present(machine)
    never_came = machine.state is MachineState.CREATING and machine.launch_settled and now >= machine.launch_deadline
    if machine.state is not MachineState.UP and not never_came:
        return MachineStep(present)
    again = replace(present, state=MachineState.CREATING, launch_deadline=max(machine.launch_deadline, now + RELAUNCH))
    return MachineStep(again, (Effect(EffectKind.LAUNCH, machine.id),))


def _queued(machine: Machine, detail: str, now: float) -> Machine:
    """Record the provider's reason. A machine that has started is not queued any more, whatever a late answer says."""
    present = _present(machine)
    if machine.started_at is not None or machine.state not in (MachineState.CREATING, MachineState.QUEUED):
        return present
    since = now if machine.queued_at is None else machine.queued_at
    why = machine.detail if machine.withdrawing else detail
    return replace(present, state=MachineState.QUEUED, queued_at=since, host_due=None, detail=why)


def _start(machine: Machine, now: float, reported: float | None = None) -> Machine:
    """Start the clocks of a machine that has left its provider's queue; do nothing if they run.

    `reported` is when the provider says that it started, by its own clock. It moves clocks back that run since a later
    time. Before the machine's creation it is no start but a clock that differs from ours, and does not count.
    """
    known = reported if reported is not None and reported >= machine.created_at else None
    at = now if known is None else min(known, now)
    if machine.started_at is not None and (known is None or at >= machine.started_at):
        return machine
    started = replace(
        machine,
        started_at=at,
        host_due=machine.host_due if machine.host_seconds is None else at + machine.host_seconds,
        ends_at=machine.ends_at if machine.life_seconds is None else at + machine.life_seconds,
    )
    if machine.state is not MachineState.QUEUED:
        return started
    return replace(started, state=MachineState.CREATING, withdrawing=False, detail="")


def _withdraw(machine: Machine, why: str) -> MachineStep:
    """Ask the provider to cancel the machine. It stays queued until the provider has answered."""
    if machine.state is not MachineState.QUEUED or machine.withdrawing:
        return MachineStep(machine)
    return MachineStep(replace(machine, withdrawing=True, detail=why), (Effect(EffectKind.WITHDRAW, machine.id),))


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


def _present(machine: Machine) -> Machine:
    """Forget the lists in which the machine was missing."""
    return replace(machine, gone_sightings=0, gone_since=None, interrupted=False)


def _release(machine: Machine, why: str) -> MachineStep:
    if not machine.wanted:
        return MachineStep(machine)
    released = replace(machine, state=MachineState.RELEASING, detail=why)
    return MachineStep(released, (Effect(EffectKind.TERMINATE, machine.id),))


def _gone(machine: Machine, now: float, detail: str) -> Machine:
    return replace(machine, state=MachineState.GONE, launch_settled=True, gone_at=now, detail=detail)
