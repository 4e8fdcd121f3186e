"""What plans said is remembered, the newest of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crucible.control.forecasts import Forecast, Forecasts
from crucible.core.routing.experience import Like

TOLD = Forecast("digest", Like("torch", "T4", "script"), "local", "this computer", 100.0, 120.0)


def test_what_was_told_is_found_by_its_id() -> None:
    memory = Forecasts()
    assert memory.of(memory.remember(TOLD)) == TOLD
    assert memory.of("another") is None


@pytest.mark.parametrize(
    "changes",
    [{"program": "other"}, {"backend": "cloud"}, {"instance_type": "g4"}, {"analytic": 1.0}, {"predicted": 1.0}],
)
def test_another_forecast_has_another_id(changes: dict[str, object]) -> None:
    assert replace(TOLD, **changes).id != TOLD.id  # type: ignore[arg-type]
    assert replace(TOLD).id == TOLD.id


def test_the_oldest_is_forgotten_and_what_is_told_again_is_new() -> None:
    memory = Forecasts(kept=2)
    first, second, third = (replace(TOLD, program=name) for name in "abc")
    for one in (first, second, first, third):
        memory.remember(one)
    assert [memory.of(one.id) for one in (first, second, third)] == [first, None, third]
