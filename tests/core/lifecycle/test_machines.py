"""The rules of one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.lifecycle.builders import NOW, own_machine, pool_machine, wanted

from crucible.core.lifecycle import Machine, MachineState, advance_machine
from crucible.core.lifecycle import facts as f

LATE = NOW + 61
GONE = f.SeenGone(detail="not in the list")
FACTS: list[f.MachineFact] = [
    f.LaunchAnswered("native-2"),
    f.LaunchRefused("no room"),
    f.LaunchRefused("no room", only_call=False),
    f.LaunchLost("no answer"),
    f.FoundNothing(),
    f.HostSeen(),
    f.SeenUp(),
    f.SeenHalted(),
    GONE,
    f.SeenGone(interrupted=True),
    f.DeclaredLost("declared lost"),
    f.Unwanted("not needed"),
]
INTENDED = own_machine("att-1")
CREATING = own_machine("att-1", MachineState.CREATING)
UP = pool_machine()
HALTED = advance_machine(UP, f.SeenHalted(), NOW).machine
UNSURE = advance_machine(INTENDED, f.LaunchLost("no answer"), NOW).machine


def after(machine: Machine, *facts: f.MachineFact, now: float = NOW) -> Machine:
    for fact in facts:
        machine = advance_machine(machine, fact, now).machine
    return machine


def released(machine: Machine) -> Machine:
    return after(machine, f.Unwanted("not needed"))


def test_the_normal_life() -> None:
    answered = after(INTENDED, f.LaunchAnswered("i-1"))
    assert (answered.state, answered.native_id, answered.launch_settled) == (
        MachineState.CREATING,
        "i-1",
        True,
    )
    up = after(answered, f.HostSeen(), now=NOW + 9)
    assert (up.state, up.up_at, up.last_seen) == (MachineState.UP, NOW + 9, NOW + 9)
    step = advance_machine(up, f.Unwanted("idle"), NOW + 20)
    assert step.machine.state is MachineState.RELEASING
    assert wanted(step.effects) == [("terminate", up.id)]
    gone = after(step.machine, GONE, GONE, now=NOW + 30)
    assert (gone.state, gone.gone_at) == (MachineState.GONE, NOW + 30)


def claimed(machine: Machine, native_id: str) -> Machine:
    return replace(machine, claimed_by=native_id)


def test_a_host_may_speak_before_the_launch_is_answered() -> None:
    seen = after(claimed(UNSURE, "i-1"), f.HostSeen())
    assert (seen.state, seen.native_id, seen.launch_settled) == (MachineState.UP, "i-1", True)
    assert after(seen, f.LaunchAnswered("i-1")) == seen


def test_a_host_that_has_not_claimed_its_machine_settles_nothing() -> None:
    seen = after(INTENDED, f.HostSeen())
    assert (seen.state, seen.native_id, seen.launch_settled) == (MachineState.UP, None, False)


def test_contact_by_the_host_that_claimed_ends_the_launch_until_the_next_one() -> None:
    ahead = replace(claimed(UNSURE, "i-1"), launch_deadline=NOW + 90)
    seen = after(ahead, f.HostSeen())
    assert seen.launch_deadline == seen.last_seen == NOW
    assert after(seen, f.HostSeen(), now=NOW + 5).launch_deadline == NOW
    again = after(seen, f.SeenHalted())
    assert again.launch_deadline > NOW
    assert after(again, f.HostSeen(), now=NOW + 5).launch_deadline == NOW + 5


def test_contact_by_a_host_that_has_not_claimed_leaves_the_launch_open() -> None:
    ahead = replace(INTENDED, launch_deadline=NOW + 90)
    assert after(ahead, f.HostSeen()).launch_deadline == NOW + 90


@pytest.mark.parametrize("facts", [("i-2", "seen"), ("seen", "i-2")])
def test_of_two_that_one_token_made_the_claimed_one_is_the_machine(facts: tuple[str, str]) -> None:
    told = [f.HostSeen() if word == "seen" else f.LaunchAnswered(word) for word in facts]
    assert after(claimed(UNSURE, "i-1"), *told).native_id == "i-1"


def test_the_machine_is_the_one_whose_host_claims_it_though_another_was_answered_before() -> None:
    answered = after(UNSURE, f.LaunchAnswered("i-2"))
    assert after(claimed(answered, "i-1"), f.HostSeen()).native_id == "i-1"


def test_a_host_that_comes_back_keeps_the_time_it_first_came_up() -> None:
    assert after(HALTED, f.HostSeen(), now=NOW + 99).up_at == UP.up_at


@pytest.mark.parametrize("fact", FACTS, ids=repr)
def test_what_is_gone_stays_gone(fact: f.MachineFact) -> None:
    gone = pool_machine(MachineState.GONE)
    step = advance_machine(gone, fact, LATE)
    assert (step.machine, step.effects) == (gone, ())


def test_absence_is_believed_when_it_was_seen_twice() -> None:
    once = after(UP, GONE)
    assert once.state is MachineState.UP
    assert after(once, GONE).state is MachineState.GONE


def test_a_list_that_was_long_on_its_way_is_as_old_as_the_question() -> None:
    """Asked for within the settle window, it may show what was before the machine was made."""
    slow = replace(UP, settle_window=15.0)
    once = advance_machine(slow, f.SeenGone(absent_for=0.0), NOW).machine
    assert advance_machine(once, f.SeenGone(absent_for=14.0), NOW + 3000).machine.alive
    assert not advance_machine(once, f.SeenGone(absent_for=15.0), NOW).machine.alive


def test_an_empty_find_is_as_old_as_the_question() -> None:
    machine = released(UNSURE)
    late = machine.launch_deadline + 20
    for asked_at, finds in ((machine.launch_deadline - 1, 0), (machine.launch_deadline, 1)):
        assert advance_machine(machine, f.FoundNothing(asked_at), late).machine.empty_finds == finds


@pytest.mark.parametrize("sign", [f.SeenUp(), f.HostSeen(), f.SeenHalted()], ids=repr)
def test_a_sign_of_life_between_two_sightings_begins_the_count_anew(sign: f.MachineFact) -> None:
    assert after(UP, GONE, sign, GONE).alive
    assert not after(UP, GONE, sign, GONE, GONE).alive


@pytest.mark.parametrize("machine", [INTENDED, UNSURE, released(INTENDED), released(UNSURE)])
def test_absence_means_nothing_before_the_launch_is_settled(machine: Machine) -> None:
    assert after(machine, GONE, GONE, GONE) == machine


@pytest.mark.parametrize("order", [(True, False), (False, True), (True, True)])
def test_one_word_of_interruption_is_enough(order: tuple[bool, bool]) -> None:
    gone = after(UP, *(f.SeenGone(interrupted=said) for said in order))
    assert gone.interrupted


def test_an_interruption_that_did_not_happen_is_forgotten() -> None:
    assert not after(UP, f.SeenGone(interrupted=True), f.SeenUp(), GONE, GONE).interrupted


def test_a_refused_launch_is_gone() -> None:
    gone = after(INTENDED, f.LaunchRefused("no room"))
    assert (gone.state, gone.gone_at, gone.detail) == (MachineState.GONE, NOW, "no room")
    assert after(released(UNSURE), f.LaunchRefused("no room")).state is MachineState.GONE


@pytest.mark.parametrize(
    ("machine", "only_call"), [(INTENDED, False), (UNSURE, False), (CREATING, True)], ids=["sent", "lost", "answered"]
)
def test_a_refusal_says_nothing_of_an_earlier_call(machine: Machine, only_call: bool) -> None:
    step = advance_machine(machine, f.LaunchRefused("no room", only_call), NOW)
    assert (step.machine.state, step.machine.detail) == (MachineState.RELEASING, "no room")
    assert wanted(step.effects) == [("terminate", machine.id)]


def test_a_machine_refused_after_a_call_without_an_answer_is_gone_when_nothing_was_found_in_time() -> None:
    leaving = after(INTENDED, f.LaunchSent(NOW + 90), f.LaunchRefused("no room", only_call=False))
    assert after(leaving, *[f.FoundNothing()] * 5, now=NOW + 89).alive
    assert not after(leaving, *[f.FoundNothing()] * 2, now=NOW + 91).alive
    assert after(leaving, f.LaunchAnswered("i-5"), *[f.FoundNothing()] * 2, now=NOW + 91).native_id == "i-5"


def test_a_lost_answer_leaves_everything_open() -> None:
    assert (UNSURE.state, UNSURE.launch_settled, UNSURE.detail) == (MachineState.INTENDED, False, "no answer")


def test_empty_finds_count_only_after_the_deadline() -> None:
    leaving = released(UNSURE)
    early = after(leaving, *[f.FoundNothing()] * 5, now=NOW + 59)
    assert early == leaving
    once = after(early, f.FoundNothing(), now=LATE)
    assert once.alive
    gone = after(once, f.FoundNothing(), now=LATE)
    assert (gone.state, gone.launch_settled, gone.detail) == (MachineState.GONE, True, "no machine was made")


def test_empty_finds_do_not_end_a_machine_that_is_still_wanted() -> None:
    assert after(UNSURE, *[f.FoundNothing()] * 5, now=LATE).state is MachineState.INTENDED


def test_empty_finds_before_another_call_are_void() -> None:
    again = after(UNSURE, f.FoundNothing(), f.FoundNothing(), f.LaunchLost("no answer"), now=LATE)
    assert after(released(again), f.FoundNothing(), now=LATE).alive


def test_empty_finds_say_nothing_of_a_machine_that_answered() -> None:
    leaving = released(CREATING)
    assert after(leaving, f.FoundNothing(), f.FoundNothing(), now=LATE) == leaving


def test_an_answer_while_releasing_keeps_it_releasing_with_its_native_id() -> None:
    answered = after(released(UNSURE), f.LaunchAnswered("i-9"))
    assert (answered.state, answered.native_id) == (MachineState.RELEASING, "i-9")
    assert after(answered, GONE, GONE).state is MachineState.GONE


def test_a_host_that_speaks_while_releasing_does_not_bring_it_back() -> None:
    for machine in (released(UNSURE), released(CREATING), released(UP)):
        seen = after(machine, f.HostSeen())
        assert seen.state is MachineState.RELEASING
        assert seen.launch_settled == machine.launch_settled


def test_a_halted_machine_is_launched_again_with_the_same_call() -> None:
    step = advance_machine(UP, f.SeenHalted(), NOW)
    assert wanted(step.effects) == [("launch", UP.id)]
    assert (step.machine.state, step.machine.call) == (MachineState.CREATING, UP.call)
    assert after(step.machine, f.HostSeen()).state is MachineState.UP


@pytest.mark.parametrize("machine", [INTENDED, CREATING, HALTED, released(UP)])
def test_it_is_not_launched_again_while_a_launch_is_under_way_or_unwanted(machine: Machine) -> None:
    step = advance_machine(machine, f.SeenHalted(), NOW)
    assert (step.machine.state, step.effects) == (machine.state, ())


def test_a_machine_that_halts_again_before_its_host_spoke_is_launched_again() -> None:
    step = advance_machine(after(HALTED, f.LaunchAnswered("native-2")), f.SeenHalted(), NOW)
    assert wanted(step.effects) == [("launch", UP.id)]


def test_a_refused_second_launch_does_not_make_a_machine_gone() -> None:
    """Its host is dead, its runners may live: only the place can say that they do not."""
    refused = after(HALTED, f.LaunchRefused("the disk is full"))
    assert (refused.state, refused.detail) == (MachineState.UP, "the disk is full")
    assert wanted(advance_machine(refused, f.SeenHalted(), NOW).effects) == [("launch", UP.id)]
    assert after(refused, GONE, GONE).state is MachineState.GONE
    assert after(released(HALTED), f.LaunchRefused("no")).state is MachineState.RELEASING


@pytest.mark.parametrize("machine", [INTENDED, UNSURE, CREATING, UP, HALTED])
def test_an_unwanted_machine_is_ended_once(machine: Machine) -> None:
    step = advance_machine(machine, f.Unwanted("idle"), NOW)
    assert (step.machine.state, step.machine.detail) == (MachineState.RELEASING, "idle")
    assert wanted(step.effects) == [("terminate", machine.id)]
    again = advance_machine(step.machine, f.Unwanted("idle"), NOW)
    assert (again.machine, again.effects) == (step.machine, ())


@given(st.lists(st.tuples(st.sampled_from(FACTS), st.sampled_from([0.0, 1.0, 70.0])), max_size=40))
def test_any_facts_in_any_order(history: list[tuple[f.MachineFact, float]]) -> None:
    machine, now = INTENDED, NOW
    for fact, later in history:
        now += later
        before = replace(machine)
        step = advance_machine(machine, fact, now)
        assert machine == before
        assert step == advance_machine(machine, fact, now)
        assert all(effect.machine == machine.id for effect in step.effects)
        check_change(machine, step.machine)
        machine = step.machine


def check_change(before: Machine, after_: Machine) -> None:
    if before.state is MachineState.RELEASING:
        assert after_.state in (MachineState.RELEASING, MachineState.GONE)
    if before.state is MachineState.GONE:
        assert after_ == before
    if after_.state is MachineState.UP and before.state is not MachineState.UP:
        assert before.state in (MachineState.INTENDED, MachineState.CREATING)
    assert (after_.gone_at is not None) == (after_.state is MachineState.GONE)
    assert (after_.id, after_.owner, after_.call) == (before.id, before.owner, before.call)
    assert after_.native_id is not None or before.native_id is None
    assert before.up_at is None or after_.up_at is not None


def test_a_call_that_is_over_cannot_take_effect_for_as_long_as_one_under_way() -> None:
    machine = advance_machine(own_machine("att-1"), f.LaunchSent(NOW + 125), NOW).machine
    assert advance_machine(machine, f.LaunchLost("timed out"), NOW).machine.launch_deadline == NOW + 125
    assert advance_machine(machine, f.LaunchLost("cut off", NOW + 15), NOW).machine.launch_deadline == NOW + 15
    assert advance_machine(machine, f.LaunchLost("cut off", NOW + 900), NOW).machine.launch_deadline == NOW + 125


def test_a_host_that_ended_before_it_ever_came_is_started_again() -> None:
    made = replace(pool_machine(MachineState.CREATING), up_at=None, launch_deadline=NOW + 60)
    assert advance_machine(made, f.SeenHalted(), NOW + 59).effects == ()
    step = advance_machine(made, f.SeenHalted(), NOW + 60)
    assert wanted(step.effects) == [("launch", made.id)]
    assert advance_machine(step.machine, f.SeenHalted(), NOW + 61).effects == (), "one call at a time"
    assert wanted(advance_machine(step.machine, f.SeenHalted(), NOW + 90).effects) == [("launch", made.id)]
