from __future__ import annotations

import pytest

from crucible.core.health import Goal, goal_of, select_series
from crucible.core.health.series_names import MOST_SERIES, training_counterpart, training_losses


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("loss", Goal.LOWER),
        ("val/perplexity", Goal.LOWER),
        ("train_loss_step", Goal.LOWER),
        ("acc@1", Goal.HIGHER),
        ("eval.F1", Goal.HIGHER),
        ("dice_loss", Goal.LOWER),
        ("lr", None),
        ("system.cpu_percent", None),
    ],
)
def test_what_is_better(name: str, goal: Goal | None) -> None:
    assert goal_of(name) is goal


def test_the_plain_loss_stands_for_the_others() -> None:
    assert training_losses(["aux_loss", "loss", "val_loss"]) == ["loss"]
    assert training_losses(["box_loss", "cls_loss", "val_loss", "g_loss"]) == ["box_loss", "cls_loss"]


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("val_loss", ["loss", "val_loss"], "loss"),
        ("val/loss", ["train/loss", "aux_loss"], "train/loss"),
        ("eval_acc", ["train_acc", "loss"], "train_acc"),
        ("val_f1", ["loss"], None),
        ("loss", ["train_loss"], None),
    ],
)
def test_what_a_held_out_series_is_held_against(name: str, names: list[str], found: str | None) -> None:
    assert training_counterpart(name, names) == found


def test_of_a_thousand_series_the_losses_and_the_machine_are_looked_at() -> None:
    names = [f"layer{n}.norm" for n in range(1000)] + ["val_loss", "loss", "system.cpu_percent"]
    found = select_series(names)
    assert found[:2] == ["loss", "val_loss"]
    assert found[-1] == "system.cpu_percent"
    assert len(found) == MOST_SERIES + 1
