"""Who has spoken is there: no missing claim, no refusal and no machine that was never seen up says otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.lifecycle.builders import NOW, launching, live, lose_machine, own_machine, run, started, wanted

from crucible.core.lifecycle import JobState, Machine, MachineState, Reason, World, advance, advance_machine
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.reasons import Retry


def machine_of(world: World) -> Machine:
    return world.machines[live(world).slots[0].machine]


@pytest.mark.parametrize("way", ["its host spoke", "its runner was heard"])
def test_a_cancel_waits_for_what_has_begun_though_no_claim_is_known(way: str) -> None:
    """As after a restore from before the claim."""
    world = launching()
    if way == "its host spoke":
        world = world.with_machine(advance_machine(machine_of(world), f.HostSeen(), NOW).machine)
    else:
        world = run(world, f.RunnerContacted(live(world).id))
    step = advance(world, f.CancelRequested(), NOW)
    assert step.world.job.state is JobState.STOPPING
    assert wanted(step.effects) == [("terminate", machine_of(world).id)]


def test_a_machine_that_was_never_seen_up_was_lost_if_its_program_had_begun() -> None:
    """Its words may lie in a mailbox while nobody could have seen its host."""
    world = launching()
    known = replace(machine_of(world), native_id="i-1", launch_settled=True)
    begun = run(world.with_machine(known), started(live(world).id))
    step = lose_machine(begun)
    assert step.world.attempts[-1].reason is Reason.MACHINE_LOST
    assert step.world.job.used == {Retry.INFRASTRUCTURE: 1}


@pytest.mark.parametrize("state", [MachineState.INTENDED, MachineState.RELEASING])
def test_what_a_host_has_claimed_is_not_gone_because_a_further_call_was_refused(state: MachineState) -> None:
    machine = replace(own_machine("att-1"), state=state, claimed_by="i-1")
    after = advance_machine(machine, f.LaunchRefused("no room"), NOW).machine
    assert (after.state, after.gone_at) == (state, None)
