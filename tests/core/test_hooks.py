"""What becomes of a message that is taken, and of one that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.hooks import (
    DISABLE,
    FIRST_WAIT,
    GIVE_UP,
    JITTER,
    LONGEST_WAIT,
    DeliveryOutcome,
    FailureStreak,
    HookEvent,
    Reply,
    judge_delivery,
)
from crucible.core.job.states import JobState

NOW = 1_700_000_000.0
DOWN = Reply(None, "nobody answers")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_what_is_taken_forgets_earlier_failures(status: int) -> None:
    found = judge_delivery(FailureStreak(7, NOW - 99), Reply(status), NOW - 99, NOW, 0.0)
    assert (found.outcome, found.streak, found.is_final, found.disabled) == (
        DeliveryOutcome.DELIVERED,
        FailureStreak(),
        True,
        "",
    )
    assert found.not_before <= NOW


@pytest.mark.parametrize("status", [None, 100, 300, 302, 400, 401, 404, 429, 500, 503])
def test_everything_else_is_tried_again(status: int | None) -> None:
    found = judge_delivery(FailureStreak(), Reply(status), NOW, NOW, 0.0)
    assert (found.outcome, found.is_final, found.disabled) == (DeliveryOutcome.FAILED, False, "")
    assert (found.streak, found.not_before) == (FailureStreak(1, NOW), NOW + FIRST_WAIT)


def test_waits_double_up_to_an_hour() -> None:
    waits = [judge_delivery(FailureStreak(n, NOW), DOWN, NOW, NOW, 0.0).not_before - NOW for n in range(14)]
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[-1] == LONGEST_WAIT


@given(st.integers(0, 10_000), st.floats(-1, 1))
def test_a_wait_is_never_far_from_its_middle(failures: int, jitter: float) -> None:
    wait = judge_delivery(FailureStreak(failures, NOW), DOWN, NOW, NOW, jitter).not_before - NOW
    assert FIRST_WAIT * (1 - JITTER) - 1e-6 <= wait <= LONGEST_WAIT * (1 + JITTER) + 1e-6


@pytest.mark.parametrize(("asked", "waited"), [(60.0, 60.0), (1.0, FIRST_WAIT), (10.0**6, LONGEST_WAIT)])
def test_a_receiver_may_ask_for_time_but_not_for_ever(asked: float, waited: float) -> None:
    assert judge_delivery(FailureStreak(), Reply(429, "", asked), NOW, NOW, 0.0).not_before == NOW + waited


def test_after_a_day_the_next_message_has_its_turn_and_the_receiver_its_rest() -> None:
    before, after = (
        judge_delivery(FailureStreak(20, NOW - 9), DOWN, NOW - age, NOW, 0.0) for age in (GIVE_UP - 1, GIVE_UP)
    )
    assert (before.outcome, after.outcome) == (DeliveryOutcome.FAILED, DeliveryOutcome.GIVEN_UP)
    assert after.is_final
    assert after.not_before > NOW
    assert after.streak.failures == 21


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(422, DeliveryOutcome.GIVEN_UP), (401, DeliveryOutcome.FAILED), (None, DeliveryOutcome.FAILED)],
)
def test_a_message_that_is_refused_for_what_it_is_does_not_hold_up_the_others_for_long(
    status: int | None, outcome: DeliveryOutcome
) -> None:
    young, old = (judge_delivery(FailureStreak(9, NOW), Reply(status), NOW - age, NOW, 0.0) for age in (3599.0, 3600.0))
    assert (young.outcome, old.outcome) == (DeliveryOutcome.FAILED, outcome)


def test_days_of_failures_disable() -> None:
    assert not judge_delivery(FailureStreak(99, NOW - DISABLE + 1), DOWN, NOW, NOW, 0.0).disabled
    assert "5 days" in judge_delivery(FailureStreak(99, NOW - DISABLE), DOWN, NOW, NOW, 0.0).disabled


def test_a_receiver_that_is_gone_for_good_says_so_once() -> None:
    assert "410" in judge_delivery(FailureStreak(), Reply(410), NOW, NOW, 0.0).disabled


def test_every_way_a_job_ends_can_be_told_of() -> None:
    assert {state.value for state in JobState if state.terminal} <= set(HookEvent)
