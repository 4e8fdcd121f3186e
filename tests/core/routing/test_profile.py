from __future__ import annotations

import pytest

from crucible.core.routing.profile import (
    Conclusion,
    Evidence,
    Memory,
    Precision,
)

LINE = Evidence("train.py", 3, "model.cuda()")


def test_a_conclusion_without_a_value_is_unknown_and_asks() -> None:
    asked: Conclusion[int] = Conclusion(question="How many?")
    assert not asked.known
    assert Conclusion(0).known


def test_memory_is_the_sum_of_its_parts() -> None:
    assert Memory(1e9, 2e9, 3e9, 4e9, 0.5e9).total == 10.5e9


@pytest.mark.parametrize(("precision", "size"), [(Precision.FP32, 4), (Precision.BF16, 2), (Precision.INT4, 0.5)])
def test_a_precision_knows_its_size(precision: Precision, size: float) -> None:
    assert precision.bytes == size


def test_evidence_reads_like_a_place_in_a_file() -> None:
    assert str(LINE) == "train.py:3: model.cuda()"
