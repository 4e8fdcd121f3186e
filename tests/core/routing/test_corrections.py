"""Predictions get better with every job that ends, and say how good they have been."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.core.routing.corrections import (
    MAX_LOG_RATIO,
    Accuracy,
    Correction,
    PastRun,
    Similarity,
    accuracy,
    correction,
)
from crucible.core.routing.profile import Confidence

TRAIN = Similarity("torch", "T4", "train.py")


def lesson(ratio: float, like: Similarity = TRAIN, analytic: float = 100.0) -> PastRun:
    return PastRun(like, analytic, analytic, analytic * ratio)


def test_without_lessons_the_model_stands() -> None:
    assert correction([], TRAIN) == Correction(1.0, 0, None)


def test_a_script_that_always_takes_twice_as_long() -> None:
    found = correction([lesson(2.0)] * 10, TRAIN)
    assert found.factor == pytest.approx(2.0, rel=0.05)
    assert (found.runs, found.confidence) == (10, Confidence.HIGH)


def test_one_job_moves_it_without_being_believed_outright() -> None:
    assert 1.0 < correction([lesson(4.0)], TRAIN).factor < 4.0


def test_the_same_script_says_more_than_others() -> None:
    others = [lesson(3.0, Similarity("torch", "T4", f"{n}.py")) for n in range(20)]
    found = correction([*others, *[lesson(0.5)] * 20], TRAIN)
    assert found.factor == pytest.approx(0.5, rel=0.25)
    assert correction(others, TRAIN).factor == pytest.approx(3.0, rel=0.2)


def test_other_scripts_of_the_same_kind_say_more_than_strangers() -> None:
    strangers = [lesson(5.0, Similarity("jax", "A100", f"{n}.py")) for n in range(10)]
    kin = [lesson(1.0, Similarity("torch", "T4", f"{n}.py")) for n in range(10)]
    assert correction([*strangers, *kin], TRAIN).factor < 1.6 < correction(strangers, TRAIN).factor


def test_the_same_script_on_the_same_gpu_says_most() -> None:
    elsewhere = [lesson(4.0, Similarity("torch", "A100", "train.py"))] * 10
    here = [lesson(1.0)] * 10
    assert correction([*elsewhere, *here], TRAIN).factor < correction(elsewhere, TRAIN).factor
    assert correction([*elsewhere, *here], TRAIN).runs == 10


def test_a_script_that_varies_is_less_sure() -> None:
    assert correction([lesson(1.0), lesson(2.0), lesson(4.0)], TRAIN).confidence is Confidence.MEDIUM
    assert correction([lesson(2.0)] * 2, TRAIN).confidence is None


def test_code_without_a_name_learns_from_its_kind_alone() -> None:
    found = correction([lesson(2.0, Similarity("torch", "T4"))] * 10, Similarity("torch", "T4"))
    assert found.factor > 1.8
    assert found.runs == 0


def test_a_job_that_ended_at_once_teaches_nothing() -> None:
    assert correction([PastRun(TRAIN, 100.0, 100.0, 0.0), PastRun(TRAIN, 0.0, 0.0, 5.0)], TRAIN) == Correction()


@given(st.lists(st.floats(1e-9, 1e9), max_size=30))
def test_a_correction_stays_within_bounds(ratios: list[float]) -> None:
    found = correction([lesson(ratio) for ratio in ratios], TRAIN)
    assert math.exp(-MAX_LOG_RATIO) <= found.factor <= math.exp(MAX_LOG_RATIO)


@given(st.permutations([0.5, 0.9, 1.0, 1.3, 2.0, 7.0]))
def test_the_order_of_lessons_does_not_matter(ratios: list[float]) -> None:
    found = correction([lesson(ratio) for ratio in ratios], TRAIN)
    assert found.factor == pytest.approx(correction([lesson(r) for r in sorted(ratios)], TRAIN).factor)


def test_accuracy_is_of_what_was_told() -> None:
    told = [PastRun(TRAIN, 1.0, predicted, 100.0) for predicted in (90.0, 100.0, 110.0, 200.0)]
    assert accuracy(told) == Accuracy(4, pytest.approx(0.1), 0.75)
    assert accuracy([]) == Accuracy(0, None, None)


def test_errors_shrink_as_a_deployment_learns() -> None:
    """A model that is wrong by a factor for each kind, jobs that vary by a tenth: told one after the other."""
    dice = random.Random(7)
    kinds = {Similarity(f, g, f + s): math.exp(dice.uniform(-1, 1)) for f in "ab" for g in "xy" for s in "12"}
    learned: list[PastRun] = []
    for _ in range(400):
        like = dice.choice(list(kinds))
        real = 1000 * kinds[like] * math.exp(dice.gauss(0, 0.1))
        learned.append(PastRun(like, 1000.0, 1000.0 * correction(learned, like).factor, real))
    first, last = accuracy(learned[:40]), accuracy(learned[-100:])
    assert first.median_error is not None
    assert last.median_error is not None
    assert last.median_error < 0.12 < first.median_error
    assert last.close is not None
    assert last.close > 0.7
