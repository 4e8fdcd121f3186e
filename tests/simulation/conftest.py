from __future__ import annotations

import pytest
from tests.simulation.books import Books


@pytest.fixture
def books() -> Books:
    return Books()
