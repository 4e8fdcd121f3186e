from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crucible.inside import BaseModel
from crucible.inside.callbacks import CallbackList, StopTraining, make_callbacks


class Seen:
    """A user's own: it has one of the two methods."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, dict[str, Any]]] = []

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        self.epochs.append((epoch, metrics))


class Plain(BaseModel):
    def train(self, train_loader: Any, val_loader: Any, callbacks: Any) -> None:
        return None


class Saving(Plain):
    def save(self, path: Path) -> None:
        path.write_text("state")


def reported(job: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job / "report.jsonl").read_text().splitlines()]


def test_metrics_of_an_epoch_are_reported(job: Path) -> None:
    make_callbacks(Plain({"epochs": 4})).on_epoch_end(0, {"loss": 0.5, "accuracy": 0.25})
    (line,) = reported(job)
    assert line["metrics"] == {"loss": 0.5, "accuracy": 0.25, "epoch": 0, "total_epochs": 4}
    assert line["from_zero"] is True, "a model's epochs do, also when it begins with a later one"


@pytest.mark.parametrize("epochs", [None, "many", True, [3]])
def test_without_a_number_of_epochs_there_is_no_total(job: Path, epochs: object) -> None:
    make_callbacks(Plain({"epochs": epochs})).on_epoch_end(2)
    assert reported(job)[0]["metrics"] == {"epoch": 2}


def test_a_metric_that_is_no_number_is_named(job: Path) -> None:
    with pytest.raises(TypeError, match="loss is 'low', not a number"):
        make_callbacks(Plain({})).on_epoch_end(0, {"loss": "low"})


def test_a_saved_file_becomes_a_checkpoint(job: Path, tmp_path: Path) -> None:
    callbacks = make_callbacks(Plain({}))
    callbacks.on_epoch_end(3, {"loss": 0.5, "val_loss": 0.75})
    (tmp_path / "elsewhere.pt").write_text("weights")
    callbacks.on_checkpoint_save(3, str(tmp_path / "elsewhere.pt"))
    assert (job / "checkpoints" / "step-00000003.pt").read_text() == "weights"
    noted = reported(job)[-1]
    assert (noted["checkpoint"], noted["step"], noted["metric"]) == ("step-00000003.pt", 3, 0.75)


def test_a_file_in_the_folder_of_checkpoints_is_one_already(job: Path) -> None:
    path = job / "checkpoints" / "mine.pt"
    path.parent.mkdir()
    path.write_text("weights")
    make_callbacks(Plain({})).on_checkpoint_save(1, path)
    assert [found.name for found in path.parent.iterdir()] == ["mine.pt"]
    assert reported(job)[0]["checkpoint"] == "mine.pt"
    assert reported(job)[0]["inode"] == path.stat().st_ino


def test_a_checkpoint_that_is_not_there_is_an_error(job: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"on_checkpoint_save\(1, ...\): there is no"):
        make_callbacks(Plain({})).on_checkpoint_save(1, job / "nothing.pt")


def test_several_callbacks_get_what_they_ask_for(job: Path) -> None:
    mine, yours = Seen(), Seen()

    class Own(Plain):
        def callbacks(self) -> tuple[Seen, object]:
            return mine, object()

    callbacks = make_callbacks(Own({}), [yours])
    callbacks.on_epoch_end(0, {"loss": 1.0})
    assert mine.epochs == yours.epochs == [(0, {"loss": 1.0})]


def test_a_callback_that_fails_comes_after_the_report(job: Path) -> None:
    class Fails:
        def on_epoch_end(self, epoch: int, metrics: object) -> None:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        make_callbacks(Plain({}), [Fails()]).on_epoch_end(0, {"loss": 1.0})
    assert len(reported(job)) == 1


def test_a_model_that_saves_itself_is_saved_and_stopped(job: Path) -> None:
    callbacks = make_callbacks(Saving({}))
    callbacks.on_epoch_end(0, {})
    assert not (job / "checkpoints").exists()
    (job / "stop").touch()
    assert callbacks.should_stop()
    with pytest.raises(StopTraining, match="after epoch 1"):
        callbacks.on_epoch_end(1, {})
    assert (job / "checkpoints" / "step-00000001").read_text() == "state"


def test_a_wish_for_a_checkpoint_saves_one_and_goes_on(job: Path) -> None:
    (job / "checkpoint-now").touch()
    make_callbacks(Saving({})).on_epoch_end(4, {})
    assert (job / "checkpoints" / "step-00000004").exists()


def test_one_that_does_not_may_tell_of_its_checkpoint_first(job: Path) -> None:
    callbacks = make_callbacks(Plain({}))
    (job / "stop").touch()
    callbacks.on_epoch_end(1, {})
    (job / "weights").write_text("w")
    with pytest.raises(StopTraining, match="with the checkpoint of epoch 1"):
        callbacks.on_checkpoint_save(1, job / "weights")
    assert (job / "checkpoints" / "step-00000001").exists()


def test_one_that_saves_nothing_is_stopped_an_epoch_later(job: Path) -> None:
    callbacks = make_callbacks(Plain({}))
    (job / "stop").touch()
    callbacks.on_epoch_end(1, {})
    with pytest.raises(StopTraining, match="after epoch 2"):
        callbacks.on_epoch_end(2, {})


def test_a_list_of_none_is_fine() -> None:
    CallbackList([]).on_epoch_end(0)
