"""Both errors counted over hundreds of curves: alarms without trouble, and trouble without alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from tests.core.health import curves
from tests.core.health.curves import part, signs

from crucible.core.health import HealthInputs, Level, Stage, Verdict, judge_health

MANY = 300


def verdicts(draw: Callable[[Random], list[float]]) -> Counter[Verdict]:
    found: Counter[Verdict] = Counter()
    for seed in range(MANY):
        found[judge_health(signs({"loss": part(draw(Random(seed)))})).verdict] += 1
    return found


def held_out_verdicts(draw: Callable[[Random], tuple[list[float], list[float]]]) -> Counter[Verdict]:
    found: Counter[Verdict] = Counter()
    for seed in range(MANY):
        train, held = draw(Random(seed))
        found[judge_health(signs({"train_loss": part(train, every=60), "val_loss": part(held, every=60)})).verdict] += 1
    return found


def test_no_ordinary_curve_is_called_ill_whenever_it_is_looked_at() -> None:
    """One in a thousand looks may say that a curve is flat which is: a line that falls by little at first."""
    found: Counter[Verdict] = Counter()
    for seed in range(MANY):
        random = Random(seed)
        values = curves.converging(random)
        for length in {len(values), *(random.randint(2, len(values)) for _ in range(3))}:
            found[judge_health(signs({"loss": part(values[:length])})).verdict] += 1
    fine = found[Verdict.HEALTHY] + found[Verdict.TOO_EARLY]
    assert found[Verdict.DIVERGING] == 0
    assert found.total() - fine <= found.total() / 500, found


def test_curves_that_rise_for_good_are_found() -> None:
    assert verdicts(curves.diverging)[Verdict.DIVERGING] >= 0.99 * MANY


def test_curves_that_never_fall_are_found() -> None:
    found = verdicts(curves.flat)
    assert found[Verdict.NOT_CONVERGING] >= 0.97 * MANY
    assert found[Verdict.DIVERGING] == 0


def test_of_plateaus_most_are_found_and_none_is_called_worse() -> None:
    found = verdicts(curves.plateau)
    assert found[Verdict.PLATEAU] >= 0.6 * MANY
    assert set(found) <= {Verdict.PLATEAU, Verdict.HEALTHY}


def test_overfitting_is_found() -> None:
    assert held_out_verdicts(curves.overfitted)[Verdict.OVERFITTING] >= 0.95 * MANY


def test_a_held_out_loss_that_only_stays_above_is_no_overfitting() -> None:
    assert set(held_out_verdicts(curves.generalising)) <= {Verdict.HEALTHY, Verdict.TOO_EARLY}


@pytest.mark.parametrize("seed", range(20))
def test_gaps_spikes_and_restarts_from_a_checkpoint_are_no_trouble(seed: int) -> None:
    random = Random(seed)
    values: list[float | None] = list(curves.noisy(lambda x: 4 / (1 + 9 * x), 300, 0.1, random))
    for gap in random.sample(range(290), 20):
        values[gap] = None
    saved, died = 150, 180
    series = (part(values[:died]), part(values[saved:], first=saved))
    judged = judge_health(HealthInputs(Stage.RUNNING, {"loss": series}))
    assert judged.verdict is Verdict.HEALTHY


def test_a_job_that_begins_anew_is_judged_by_its_last_run() -> None:
    """Each fold starts where the first did; that is no divergence, and the last fold is the one that diverges."""
    fold = [4 * 0.97**n for n in range(100)]
    folds = part(fold) + tuple(p._replace(at=p.at + 600) for p in part(fold[:20]))
    assert judge_health(signs({"loss": folds})).level is Level.GOOD
    worse = part(fold) + tuple(p._replace(at=p.at + 600) for p in part([*fold[:50], *(1.0 + n / 3 for n in range(60))]))
    assert judge_health(signs({"loss": worse})).verdict is Verdict.DIVERGING


def test_steps_that_begin_anew_in_every_epoch_are_one_run() -> None:
    values = [4 * 0.99**n for n in range(200)]
    points = tuple(p._replace(step=n % 50) for n, p in enumerate(part(values)))
    judged = judge_health(signs({"loss": points}))
    assert judged.verdict is Verdict.HEALTHY
    assert judged.worst.evidence["points"] == 200
