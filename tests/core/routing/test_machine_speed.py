"""What data sheets say about speed, and providers about interruptions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.routing.market import offer, spot

from crucible.core.compute.gpus import GPUS
from crucible.core.compute.offers import Tariff
from crucible.core.routing.machine_speed import HOURS_A_MONTH, INTERRUPTIONS, DataSheetSpeeds

SHEETS = DataSheetSpeeds()
T4 = offer("aws/us-east-1/g4dn.xlarge", 0.526)


def speed(gpu: str, precision: str = "fp16") -> float:
    found = SHEETS.speed(gpu, precision)
    assert found is not None
    return found


def test_newer_ones_are_faster() -> None:
    order = ["K80", "T4", "A10", "A100-40GB-SXM", "H100-SXM"]
    speeds = [speed(name) for name in order]
    assert speeds == sorted(speeds)


def test_drivers_and_people_may_call_it_otherwise() -> None:
    assert speed("Tesla T4") == speed("t4")


def test_a_format_without_a_fast_way_is_computed_as_32_bits() -> None:
    assert speed("T4", "bf16") == speed("T4", "fp32")
    assert speed("T4", "int3") == speed("T4", "fp32")


def test_a_type_that_nobody_knows() -> None:
    assert SHEETS.speed("X9000", "fp32") is None


@pytest.mark.parametrize("gpu", [gpu.name for gpu in GPUS])
def test_sixteen_processors_are_slower_than_any_gpu(gpu: str) -> None:
    assert SHEETS.cpu_speed(16) < speed(gpu, "fp32")


def test_only_spot_machines_are_taken_back() -> None:
    assert SHEETS.interruptions(T4) == 0.0
    assert SHEETS.interruptions(spot(T4, 0.3)) == INTERRUPTIONS


@pytest.mark.parametrize(("between", "a_month"), [((0.0, 0.0), 0.0), ((0.05, 0.15), 0.105), ((1.0, 1.0), 4.6)])
def test_a_share_in_a_month_is_a_rate_an_hour(between: tuple[float, float], a_month: float) -> None:
    told = replace(spot(T4, 0.3), tariff=Tariff(interruption=between))
    assert SHEETS.interruptions(told) * HOURS_A_MONTH == pytest.approx(a_month, rel=0.01)
