"""Children of the warm process: when there is time for a spare."""

from __future__ import annotations

import pytest

from crucible.analysis.children import processors_idle


@pytest.mark.parametrize(("load", "idle"), [(0.0, True), (1e6, False)])
def test_the_load_says_whether_a_processor_is_idle(load: float, idle: bool) -> None:
    assert processors_idle(lambda: (load, 0.0, 0.0)) is idle


def test_where_nobody_tells_the_load_none_is_idle() -> None:
    def untold() -> tuple[float, float, float]:
        raise OSError("Load averages are unobtainable")

    assert not processors_idle(untold)
