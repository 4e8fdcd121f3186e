"""Single operations against torch: the same shape, and never less kept than autograd keeps."""

from __future__ import annotations

import pytest
from tests.analysis.oracle.operations import OPERATIONS, TENSORS
from tests.analysis.oracle.torch_counts import Counts, ask_torch
from tests.analysis.values_of import follow

from crucible.analysis.values.values import Tensor

SMALL = 64
"""Bytes: a statistic or an index of these little tensors; of larger ones a hundredth."""


@pytest.fixture(scope="module")
def truth() -> Counts:
    return ask_torch({"models": {}, "tensors": TENSORS, "operations": OPERATIONS})["operations"]


@pytest.mark.timeout(1500)
def test_operations_give_the_same_shapes_and_keep_no_less(truth: Counts) -> None:
    before = follow(TENSORS).tape.saved
    wrong = []
    for expression, told in truth.items():
        machine = follow(f"{TENSORS}\nx = {expression}\n")
        found = machine.modules["a.py"].names["x"]
        shape = list(found.shape) if isinstance(found, Tensor) and found.shape is not None else None
        kept = machine.tape.saved - before
        if shape != told["shape"] or kept < 0.99 * told["saved"] - SMALL:
            wrong.append(f"{expression}: {shape}, {kept:.0f} bytes; torch: {told}")
    assert not wrong, "\n".join(wrong)
