from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.health.curves import part, signs

from crucible.core.health import HealthInputs, Level, Point, Stage, Verdict, judge_health

FALLING = [4 * 0.98**n for n in range(80)]
GiB = 1024**3


def samples(value: float, *, seconds: float = 900.0, at: float = 1000.0) -> tuple[Point, ...]:
    return tuple(Point(n, value, at + 5 * n) for n in range(int(seconds / 5) + 1))


# Numbers that are none


def test_a_loss_that_is_no_number_any_more_is_told_with_the_step_it_began_at() -> None:
    judged = judge_health(signs({"loss": part([*FALLING, None, None, None])}))
    assert judged.verdict is Verdict.NOT_FINITE
    assert judged.level is Level.BAD
    assert judged.worst.series == "loss"
    assert judged.worst.step == 80
    assert judged.worst.evidence == {"points": 3, "last_value": FALLING[-1]}
    assert "learning rate" in judged.worst.advice


def test_a_value_missing_now_and_then_is_a_gap() -> None:
    values: list[float | None] = [*FALLING]
    values[10] = values[40] = values[41] = values[79] = None
    assert judge_health(signs({"loss": part(values)})).verdict is Verdict.HEALTHY


def test_at_the_end_one_is_enough() -> None:
    ended = signs({"loss": part([*FALLING, None])}, Stage.COMPLETED)
    assert judge_health(ended).verdict is Verdict.NOT_FINITE


def test_of_a_thinned_series_the_tail_is_looked_at() -> None:
    whole = signs({"loss": part(FALLING)})
    assert judge_health(whole).verdict is Verdict.HEALTHY
    judged = judge_health(replace(whole, tails={"loss": part([None] * 64, first=900)}))
    assert judged.verdict is Verdict.NOT_FINITE
    assert "since step 900 or earlier" in judged.worst.message


def test_a_metric_that_is_no_loss_may_be_no_number() -> None:
    assert judge_health(signs({"loss": part(FALLING), "lr": part([None] * 80)})).verdict is Verdict.HEALTHY


# Curves


def test_a_burst_is_seen_within_three_points() -> None:
    judged = judge_health(signs({"loss": part([*FALLING, 900.0, 4000.0, 90000.0])}))
    assert judged.verdict is Verdict.DIVERGING
    assert judged.worst.step == 80


def test_a_single_spike_is_no_burst() -> None:
    assert judge_health(signs({"loss": part([*FALLING, 900.0, FALLING[-1], FALLING[-1]])})).verdict is Verdict.HEALTHY


def test_losses_of_parts_that_work_against_each_other_may_rise() -> None:
    rising = [1 + n / 20 for n in range(80)]
    assert judge_health(signs({"g_loss": part(rising), "d_loss": part(FALLING)})).verdict is not Verdict.DIVERGING
    assert judge_health(signs({"loss": part(rising)})).verdict is Verdict.DIVERGING


def test_a_flat_start_of_a_long_job_means_nothing_yet() -> None:
    flat = signs({"loss": part([2.3] * 100)}, fraction=0.02)
    assert judge_health(flat).verdict is Verdict.HEALTHY
    assert judge_health(replace(flat, fraction=0.5)).verdict is Verdict.NOT_CONVERGING


def test_held_out_accuracy_that_falls_is_overfitting_too() -> None:
    trained = [0.5 + 0.49 * (1 - 0.9**n) for n in range(40)]
    held = [0.5 + 0.3 * (1 - 0.7**n) - max(0, n - 12) * 0.01 for n in range(40)]
    judged = judge_health(signs({"train_acc": part(trained), "val_acc": part(held)}))
    assert judged.verdict is Verdict.OVERFITTING
    assert judged.worst.series == "val_acc"
    assert judged.worst.evidence["best"] > judged.worst.evidence["now"] > 0


def test_worse_on_both_is_no_overfitting() -> None:
    turning = [1 + abs(n - 20) / 20 for n in range(40)]
    judged = judge_health(signs({"train_loss": part(turning), "val_loss": part(turning)}))
    assert Verdict.OVERFITTING not in {finding.verdict for finding in judged.findings}


def test_the_worst_comes_first_and_the_rest_is_kept() -> None:
    series = {"loss": part([*FALLING, None, None]), "system.memory_bytes": samples(0.95 * GiB)}
    judged = judge_health(signs(series, memory_limit=GiB))
    assert [finding.verdict for finding in judged.findings] == [Verdict.NOT_FINITE, Verdict.NEAR_MEMORY_LIMIT]


def test_a_loss_beyond_all_numbers_diverges() -> None:
    assert judge_health(signs({"loss": part([*FALLING, 1e305, 1e306, 1.7e308])})).verdict is Verdict.DIVERGING


# The machine


def stalled(silence: float, cpu_percent: float = 1.0, **more: Any) -> HealthInputs:
    """Reports every 5 seconds, then none, while the machine is still sampled."""
    loss = part(FALLING)
    cpu = samples(cpu_percent, seconds=loss[-1].at - 1000 + silence)
    return HealthInputs(Stage.RUNNING, {"loss": (loss,), "system.cpu_percent": (cpu,)}, **more)


def test_no_report_for_many_times_the_usual_is_a_stall() -> None:
    judged = judge_health(stalled(600, quiet_seconds=600.0))
    assert judged.verdict is Verdict.STALLED
    assert judged.worst.step == 79
    assert judged.worst.evidence == {"seconds": 600.0, "usual_seconds": 5.0}


@pytest.mark.parametrize(("silence", "quiet"), [(100, 100.0), (600, 3.0)])
def test_a_pause_or_other_output_is_none(silence: float, quiet: float) -> None:
    assert judge_health(stalled(silence, quiet_seconds=quiet)).verdict is Verdict.HEALTHY


@pytest.mark.parametrize(("silence", "verdict"), [(500.0, Verdict.HEALTHY), (700.0, Verdict.STALLED)])
def test_while_it_computes_it_may_be_silent_for_longer(silence: float, verdict: Verdict) -> None:
    assert judge_health(stalled(silence, cpu_percent=95.0, quiet_seconds=silence)).verdict is verdict


def test_a_try_that_has_not_reported_yet_is_not_measured_by_the_one_before() -> None:
    job = stalled(600, quiet_seconds=None)
    again = replace(job, series={**job.series, "loss": (*job.series["loss"], ())})
    assert judge_health(again).verdict is Verdict.HEALTHY


def test_a_slow_job_has_more_time() -> None:
    loss = part(FALLING[:20], every=300)
    cpu = samples(90.0, seconds=loss[-1].at - 1000 + 1200)
    job = HealthInputs(Stage.RUNNING, {"loss": (loss,), "system.cpu_percent": (cpu,)}, quiet_seconds=1200.0)
    assert judge_health(job).verdict is Verdict.HEALTHY


def test_what_no_longer_runs_does_not_stall() -> None:
    assert (
        judge_health(replace(stalled(600, quiet_seconds=600.0), stage=Stage.COMPLETED)).verdict is Verdict.FINISHED_WELL
    )


def test_a_program_that_reports_prints_and_computes_nothing_is_stalled() -> None:
    def silent(cpu: float, quiet: float) -> Verdict:
        series = {"system.cpu_percent": (samples(cpu),)}
        return judge_health(HealthInputs(Stage.RUNNING, series, ran_seconds=900.0, quiet_seconds=quiet)).verdict

    assert silent(0.1, 900.0) is Verdict.STALLED
    assert silent(80.0, 900.0) is Verdict.TOO_EARLY
    assert silent(0.1, 20.0) is Verdict.TOO_EARLY


def test_idle_gpus_are_counted() -> None:
    gpus = {f"system.gpu{n}_utilisation": samples(value) for n, value in enumerate((0.0, 97.0))}
    judged = judge_health(signs({"loss": part(FALLING), **gpus}, gpus=2))
    assert judged.verdict is Verdict.IDLE_GPU
    assert judged.worst.evidence["idle"] == 1
    assert judge_health(signs({"loss": part(FALLING), **gpus}, gpus=2, ran_seconds=60.0)).verdict is Verdict.HEALTHY


@pytest.mark.parametrize(("used", "verdict"), [(0.95, Verdict.NEAR_MEMORY_LIMIT), (0.8, Verdict.HEALTHY)])
def test_memory_near_its_limit(used: float, verdict: Verdict) -> None:
    series = {"loss": part(FALLING), "system.memory_bytes": samples(used * GiB)}
    assert judge_health(signs(series, memory_limit=GiB)).verdict is verdict
    assert judge_health(signs(series)).verdict is Verdict.HEALTHY


# Life


@pytest.mark.parametrize(
    ("stage", "verdict", "level"),
    [
        (Stage.WAITING, Verdict.WAITING, Level.GOOD),
        (Stage.RUNNING, Verdict.HEALTHY, Level.GOOD),
        (Stage.COMPLETED, Verdict.FINISHED_WELL, Level.GOOD),
        (Stage.FAILED, Verdict.FAILED, Level.BAD),
        (Stage.CANCELLED, Verdict.CANCELLED, Level.GOOD),
    ],
)
def test_the_verdict_where_the_curve_is_fine(stage: Stage, verdict: Verdict, level: Level) -> None:
    judged = judge_health(signs({"loss": part(FALLING)}, stage))
    assert (judged.verdict, judged.level) == (verdict, level)


def test_a_failure_tells_its_reason_and_advice() -> None:
    judged = judge_health(HealthInputs(Stage.FAILED, reason="It ran out of memory.", advice="Ask for more."))
    assert (judged.worst.message, judged.worst.advice) == ("It ran out of memory.", "Ask for more.")


def test_what_is_not_heard_of_is_said() -> None:
    assert judge_health(signs({"loss": part(FALLING)}, unreachable=True)).verdict is Verdict.UNREACHABLE


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 0.9, 0.8]])
def test_few_points_are_too_early(values: list[float]) -> None:
    judged = judge_health(signs({"loss": part(values)}))
    assert judged.verdict is Verdict.TOO_EARLY
    assert judged.level is Level.GOOD


_values = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 10))
_points = st.lists(st.tuples(st.integers(0, 500), _values, st.floats(0, 1e6)), max_size=90)
_names = st.sampled_from(
    ["loss", "val_loss", "train_acc", "val_acc", "g_loss", "system.cpu_percent", "system.gpu0_utilisation", "x"]
)


@given(st.dictionaries(_names, _points, max_size=5), st.sampled_from(Stage), st.one_of(st.none(), st.floats(0, 1e5)))
def test_whatever_is_reported_is_judged_and_the_same_each_time(
    series: dict[str, list[tuple[int, float | None, float]]], stage: Stage, quiet: float | None
) -> None:
    told = {name: (tuple(Point(*point) for point in points),) for name, points in series.items()}
    job = HealthInputs(stage, told, quiet_seconds=quiet, ran_seconds=1e4, memory_limit=GiB)
    judged = judge_health(job)
    assert judged.findings
    assert judged == judge_health(job)
    for finding in judged.findings:
        assert finding.message
        assert finding.level is Level.GOOD or finding.advice or finding.verdict is Verdict.FAILED
        assert all(math.isfinite(number) for number in finding.evidence.values())
