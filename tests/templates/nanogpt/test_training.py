"""Whole runs that nothing disturbs, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.templates.nanogpt.torch_fork_server import Start, TorchForkServer
from tests.templates.nanogpt.trainer import Attempt, Done, Trainer

from crucible.agent.output.parsing import OutputParser, Progress, update_progress

TINY = ("--preset", "cpu-tiny")


def metrics(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "outputs" / "metrics.json").read_text())
    return found


def test_the_loss_falls_clearly(uninterrupted: Path) -> None:
    history = metrics(uninterrupted)["history"]
    assert isinstance(history, list)
    assert [each["step"] for each in history] == [0, 50, 100, 150, 200]
    losses = [each["val_loss"] for each in history]
    assert losses[0] > 4
    assert losses[-1] < 2.3
    assert losses == sorted(losses, reverse=True)


def test_a_run_leaves_model_config_metrics_and_sample(uninterrupted: Path) -> None:
    outputs = uninterrupted / "outputs"
    found = {path.name for path in outputs.iterdir()}
    assert found == {"model.pt", "config.json", "metrics.json", "sample.txt"}
    config = json.loads((outputs / "config.json").read_text())
    assert 40_000 < config["parameters"] < 70_000
    assert metrics(uninterrupted)["steps"] == config["steps"] == 200
    assert len((outputs / "sample.txt").read_text()) > 400


def test_checkpoints_are_named_by_step(uninterrupted: Path) -> None:
    found = sorted(path.name for path in (uninterrupted / "checkpoints").iterdir())
    assert found == [f"step_{step:08d}.pt" for step in range(20, 201, 20)]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(trainer: Trainer) -> None:
    flags = (*TINY, "--steps", "5", "--eval-batches", "1")
    folders = [trainer.folder / name for name in ("one", "same", "other")]
    seeds = ("1", "1", "2")
    starts = [Start(folder, (*flags, "--seed", seed)) for folder, seed in zip(folders, seeds, strict=True)]
    assert [done.code for done in trainer.together(*starts)] == [0, 0, 0]
    one, same, other = (metrics(folder)["weights_sha256"] for folder in folders)
    assert one == same
    assert one != other


@pytest.fixture(scope="module")
def job(
    python: Path, code: Path, torch_fork_server: TorchForkServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Attempt, Done]:
    """A short run on the platform."""
    flags = ("--steps", "40", "--eval-every", "20", "--checkpoint-every", "10", "--keep", "2")
    attempt = Trainer(python, code, tmp_path_factory.mktemp("job"), torch_fork_server).attempt(1, *TINY, *flags)
    return attempt, attempt.to_the_end()


def test_progress_loss_and_eta_are_read_from_the_output(job: tuple[Attempt, Done]) -> None:
    _, done = job
    assert done.code == 0, done.output
    parser, progress, names = OutputParser(), Progress(), set()
    for second, line in enumerate(done.output.splitlines()):
        for seen in parser.feed(line):
            names |= {name for name, _ in seen.metrics}
            progress = update_progress(progress, seen, float(second * 2))
            if seen.step == 20:
                assert progress.fraction == 0.5
                assert progress.eta_seconds
    assert names == {"loss", "train_loss", "val_loss"}
    assert (progress.step, progress.total_steps, progress.fraction) == (40, 40, 1.0)
    assert progress.loss is not None
    assert progress.loss < 4


def test_on_the_platform_it_reports_what_no_line_says(job: tuple[Attempt, Done]) -> None:
    attempt, _ = job
    reported = [json.loads(line) for line in attempt.report.read_text().splitlines()]
    named = {name for line in reported for name in line.get("metrics", {})}
    assert named == {"learning_rate", "grad_norm", "tokens_per_second"}
    saved = [(line["checkpoint"], line["step"]) for line in reported if "checkpoint" in line]
    assert saved == [(f"step_{step:08d}.pt", step) for step in (10, 20, 30, 40)]
    assert (attempt.outputs / "model.pt").exists()


def test_only_the_newest_checkpoints_are_kept(job: tuple[Attempt, Done]) -> None:
    attempt, _ = job
    found = sorted(path.name for path in attempt.checkpoints.iterdir())
    assert found == ["step_00000030.pt", "step_00000040.pt"]


def test_sample_prints_text(trainer: Trainer, uninterrupted: Path) -> None:
    done = trainer.script("sample.py", "--prompt", "MILLER:", "--length", "60", cwd=uninterrupted)
    assert done.code == 0, done.errors
    assert done.output.startswith("MILLER:")
    assert len(done.output) == len("MILLER:") + 60 + 1


def test_sample_reads_checkpoints_too_and_says_what_is_wrong(trainer: Trainer, uninterrupted: Path) -> None:
    checkpoint = str(uninterrupted / "checkpoints" / "step_00000200.pt")
    model, again, unknown, missing = trainer.together(
        Start(uninterrupted, ("--length", "40"), "sample.py"),
        Start(trainer.folder, ("--length", "40", "--model", checkpoint), "sample.py"),
        Start(uninterrupted, ("--prompt", "§"), "sample.py"),
        Start(trainer.folder, (), "sample.py"),
    )
    assert (model.code, again.code) == (0, 0)
    assert model.output == again.output
    assert (unknown.code, missing.code) == (2, 2)
    assert "does not know these characters: '§'" in unknown.errors
    assert "model.pt" in missing.errors


def test_what_cannot_run_is_refused_with_the_reason(trainer: Trainer) -> None:
    cases = {
        ("--heads", "5"): "cannot be divided",
        ("--steps", "0"): "--steps 0 is too small",
        ("--text", "/no/such/text"): "cannot be read",
        ("--block", "5000"): "too few for windows",
        ("--device", "cuda"): "finds no GPU",
        ("--tensorboard",): "pip install tensorboard",
    }
    ended = trainer.together(*(Start(trainer.folder, (*TINY, *flags)) for flags in cases))
    for (flags, said), done in zip(cases.items(), ended, strict=True):
        assert done.code == 2, flags
        assert said in done.errors, flags


READ_SCALARS = """
import sys
sys.path.insert(0, sys.argv[2])
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1])
found.Reload()
print(*sorted(found.Tags()["scalars"]), *[event.step for event in found.Scalars("val_loss")])
"""


def test_tensorboard_scalars_are_written_when_asked_for(trainer: Trainer, with_tensorboard: Path) -> None:
    env = {"PYTHONPATH": str(with_tensorboard)}
    done = trainer.plainly("--steps", "20", "--eval-every", "10", "--tensorboard", env=env)
    assert done.code == 0, done.errors
    folder = trainer.folder / "outputs" / "tensorboard"
    written = trainer.probe(READ_SCALARS, str(folder), str(with_tensorboard)).split()
    named = ["grad_norm", "learning_rate", "loss", "tokens_per_second", "train_loss", "val_loss"]
    assert written == [*named, "0", "10", "20"]
