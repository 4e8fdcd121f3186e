"""The plugin's own tests: `pytest tests`, with crucible-ml installed beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crucible_logistic.data import read
from crucible_logistic.model import Logistic


class Seen:
    """Callbacks that remember."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.saved: dict[int, str] = {}

    def on_epoch_end(self, epoch: int, metrics: dict[str, float]) -> None:
        self.losses.append(metrics["val_loss"])

    def on_checkpoint_save(self, epoch: int, path: Path) -> None:
        self.saved[epoch] = path.read_text()


def trained(**config: Any) -> tuple[Logistic, dict[str, Any], Seen]:
    model, seen = Logistic(config), Seen()
    loaders = model.prepare_dataloaders(None, model.config)
    return model, model.train(*loaders, seen), seen


def test_it_learns() -> None:
    _, result, seen = trained(epochs=10)
    assert seen.losses[-1] < seen.losses[0] / 1.2
    assert result["accuracy"] > 0.85
    assert sorted(seen.saved) == [4, 9]


def test_the_same_seed_learns_the_same() -> None:
    assert trained(epochs=3)[1] == trained(epochs=3)[1]
    assert trained(epochs=3)[1] != trained(epochs=3, seed=8)[1]


def test_it_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    _, whole, _ = trained(epochs=10)
    _, _, seen = trained(epochs=5)
    (tmp_path / "weights.json").write_text(seen.saved[4])
    model = Logistic({"epochs": 10})
    model.resume(tmp_path / "weights.json")
    assert model.train(*model.prepare_dataloaders(None, model.config), Seen()) == whole


def test_it_predicts_one_point_or_several() -> None:
    model, _, _ = trained()
    assert model.infer([2.0, 2.0])["labels"] == [1]
    answer = model.infer([[2.0, 2.0], [-2.0, -2.0]])
    assert answer["labels"] == [1, 0]
    assert answer["probabilities"][0] > 0.9


@pytest.mark.parametrize("inputs", [[1.0], [[1.0, 2.0], [1.0]], "text", None, []])
def test_what_is_no_point_is_refused(inputs: Any) -> None:
    model, _, _ = trained(epochs=1)
    with pytest.raises(ValueError, match="a point is a list of 2 numbers"):
        model.infer(inputs)


def test_it_predicts_nothing_before_it_has_learnt() -> None:
    with pytest.raises(ValueError, match="learnt nothing yet"):
        Logistic({}).infer([1.0, 2.0])


def test_it_measures_itself() -> None:
    found = Logistic({"epochs": 5}).benchmark()
    assert found["accuracy"] > 0.85
    assert found["points"] == 80
    assert found["points_per_second"] > 0


def test_it_reads_rows(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("1,2,1\n-1,-2,0\n" * 5)
    assert read(file)[:2] == [((1.0, 2.0), 1), ((-1.0, -2.0), 0)]
    model = Logistic({"epochs": 2})
    assert model.train(*model.prepare_dataloaders(file, model.config), Seen())["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2,3\n", "line 1: wanted numbers, then a label of 0 or 1"),
        ("1,2,1\n1,1\n", "line 2: wanted numbers"),
        ("a,b,1\n", "line 1: could not convert"),
        ("\n", "line 1:"),
        ("1,2,1\n", "has 1 rows; at least 5"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(ValueError, match=says):
        read(tmp_path / "points.csv")
