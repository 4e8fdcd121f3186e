from __future__ import annotations

import pytest
from tests.simulation.seeds import BAD

from crucible.simulation.faults.run import run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", BAD)
def test_what_once_broke_holds(seed: int) -> None:
    assert run(seed).broken == ""
