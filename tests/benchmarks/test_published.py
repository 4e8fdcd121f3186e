"""Published runs: what they are told to take stays near what they took."""

from __future__ import annotations

import statistics

import pytest
from benchmarks.analysis.command import main
from benchmarks.analysis.runs import PUBLISHED, Run, runs
from benchmarks.analysis.runtimes import Predicted, middle, predict, profile_of

from crucible.core.compute.gpus import is_gpu

RUNS = runs()
USUAL = 1.55
"""How many times too long or too short a run is told today; few are further off, and those are named."""
FAR = {
    "561M of nanochat, BF16": 2.2,
    "GPT-2 1558M, BF16": 1.75,
    "TinyLlama 1.1B, 22B tokens, BF16": 1.65,
    "T5 v1.1 base, compiled, BF16": 2.1,
    "BERT-large, 512 words, mixed": 2.1,
    "ResNet-101, mixed": 1.7,
    "MAE, ViT-B fine-tuned, mixed": 2.1,
    "MAE, ViT-L fine-tuned, mixed": 1.7,
}
"""Fused kernels reach more of a GPU than programs usually do, machines that share work over a network less."""


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.name} on {run.gpus} x {run.gpu}")
def test_a_run_takes_about_as_long_as_is_said(run: Run) -> None:
    bound = FAR.get(run.name, USUAL)
    assert 1 / bound < predict(run).ratio < bound


def test_runs_that_nothing_was_fitted_to_are_told_as_well_as_the_others() -> None:
    held = [predict(run) for run in RUNS if run.part == "held out"]
    assert len(held) >= 12
    assert middle(held) < 1.3
    assert 0.8 < statistics.geometric_mean(one.ratio for one in held) < 1.3


def test_runs_that_were_found_when_the_model_stood_are_told_nearly_as_well() -> None:
    fresh = [predict(run) for run in RUNS if run.part == "fresh"]
    assert len(fresh) >= 8
    assert middle(fresh) < 1.5
    assert 0.8 < statistics.geometric_mean(one.ratio for one in fresh) < 1.4


def test_every_run_says_where_it_comes_from() -> None:
    for run in RUNS:
        assert run.source.startswith("https://")
        assert run.date[:2] == "20"
        assert is_gpu(run.gpu)
        assert (PUBLISHED / run.file).is_file()


def test_what_the_programs_do_is_read_from_them() -> None:
    found = profile_of("imagenet.py", ("--amp",))
    assert (found.model.value, found.batch_size.value, found.epochs.value) == ("resnet50", 256, 90)
    assert found.steps.value == pytest.approx(90 * 1_281_167 / 256, rel=1e-3)
    assert profile_of("gpt.py", ()).parameters.value == pytest.approx(163e6, rel=0.01)


def test_too_long_and_too_short_count_alike() -> None:
    run = RUNS[0]
    assert middle([Predicted(run, run.hours * 2), Predicted(run, run.hours / 2)]) == 2.0


def test_each_error_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--published"]) == 0
    told = capsys.readouterr().out
    assert all(run.name in told for run in RUNS)
    assert "held out: 14 runs, off by a factor of" in told
    assert "fresh: 16 runs, off by a factor of" in told
