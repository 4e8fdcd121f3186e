from __future__ import annotations

import pytest

from crucible.wire.documents.checkpoint_names import is_unfinished, step_in_name


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-00000005.pt", 5),
        ("step-00000005", 5),
        ("ckpt_1200.pt", 1200),
        ("epoch_3.pth", 3),
        ("checkpoint-500", 500),
        ("epoch=3-step=1200.ckpt", 1200),
        ("global_step77", 77),
        ("model-iter12.bin", 12),
        ("Step_9.PT", 9),
        ("500", 500),
        ("00500.safetensors", 500),
        ("step-0", 0),
        ("last.pt", None),
        ("model_v2.pt", None),
        ("at-20260101T000000Z", None),
        ("step-99999999999999999999", None),
        ("step", None),
        ("", None),
    ],
)
def test_the_step_in_a_name(name: str, step: int | None) -> None:
    assert step_in_name(name) == step


def test_unfinished_names() -> None:
    assert all(is_unfinished(name) for name in (".a", "a.tmp", "a.pt.part", "a.partial", ".tmp"))
    assert not any(is_unfinished(name) for name in ("a", "a.pt", "tmp", "a.tmp.pt", "part"))
