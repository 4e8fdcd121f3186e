"""Arrays that a program makes with NumPy."""

from __future__ import annotations

import pytest
from tests.analysis.values_of import value_of

from crucible.analysis.values.values import Tensor

MADE = {
    "np.zeros((3, 4))": ((3, 4), "float64"),
    "np.zeros(3, np.float32)": ((3,), "float32"),
    "np.ones((3, 4), dtype='f4')": ((3, 4), "float32"),
    "np.empty((3, 4), dtype=int)": ((3, 4), "int64"),
    "np.full((3, 4), 1, dtype=np.uint8)": ((3, 4), "uint8"),
    "np.random.rand(3, 4)": ((3, 4), "float64"),
    "np.random.normal(0, 1, (3, 4))": ((3, 4), "float64"),
    "np.random.binomial(1, 0.5, size=3)": ((3,), "int64"),
    "np.random.randint(0, 2, 3, dtype='int8')": ((3,), "int8"),
}


@pytest.mark.parametrize(("code", "wanted"), MADE.items(), ids=MADE)
def test_arrays_have_the_shape_and_the_numbers_they_are_told(code: str, wanted: tuple[tuple[int, ...], str]) -> None:
    found = value_of(f"import numpy as np\nx = {code}")
    assert isinstance(found, Tensor)
    assert (found.shape, found.kind) == wanted


@pytest.mark.parametrize("code", ["np.random.rand()", "np.random.normal(0, 1)", "np.random.choice(['a', 'b'], 1)"])
def test_one_number_and_what_is_chosen_are_no_arrays(code: str) -> None:
    assert not isinstance(value_of(f"import numpy as np\nx = {code}"), Tensor)
