from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crucible.core.compute.resources import (
    MAX_CPUS,
    MAX_GPUS,
    MAX_MEMORY,
    MAX_SECONDS,
    MIN_MEMORY,
    Allocation,
    Capacity,
    GiB,
    MiB,
    Resources,
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
)
from crucible.core.errors import BadInput

MEMORY = {
    "1048576": MiB,
    "0": 0,
    "512Mi": 512 * MiB,
    "512m": 512 * MiB,
    "512MB": 512 * MiB,
    "4GB": 4 * GiB,
    "4 GiB": 4 * GiB,
    " 1.5g ": 3 * GiB // 2,
    "2T": 2048 * GiB,
    "1k": 1024,
    "7b": 7,
    "9007199254740993": 2**53 + 1,
}

DURATIONS = {
    "90": 90.0,
    "0.5": 0.5,
    "30s": 30.0,
    "10m": 600.0,
    "1h30m": 5400.0,
    "1h 30m": 5400.0,
    "2d": 172_800.0,
    "1.5H": 5400.0,
    " 5 m ": 300.0,
}


@pytest.mark.parametrize(("text", "size"), MEMORY.items())
def test_memory_is_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "G", "-4G", "4 X", "4GG", "1e9", "nan", "inf", "4,5G", "٤G", "4G\n5", "9" * 400])
def test_what_is_no_amount_of_memory_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match="512Mi"):
        parse_memory(text)


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "-5", "5ms", "1h foo", "10 20s", "1.5.3h", "1e3", "nan", "inf", "٣s", "30 min"]
)
def test_what_is_no_length_of_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match="1h30m"):
        parse_duration(text)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_memory, parse_duration):
        try:
            assert parse(text) >= 0
        except BadInput:
            continue


@given(st.integers(0, 9999), st.sampled_from(["", "Ki", "Mi", "Gi"]))
def test_memory_written_for_people_reads_back_within_its_four_digits(number: int, unit: str) -> None:
    size = parse_memory(f"{number}{unit}")
    assert parse_memory(format_memory(size)) == pytest.approx(size, rel=1e-3)


@given(st.integers(0, MAX_SECONDS))
def test_a_duration_written_for_people_reads_back_within_its_smaller_unit(seconds: int) -> None:
    lost = seconds - parse_duration(format_duration(seconds))
    assert 0 <= lost < (1 if seconds < 3600 else 60 if seconds < 86400 else 3600)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (512 * MiB, "512 MiB"), (1.5 * GiB, "1.5 GiB"), (MAX_MEMORY, "64 TiB")],
)
def test_memory_as_people_see_it(size: float, text: str) -> None:
    assert format_memory(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0s"), (42, "42s"), (200, "3m 20s"), (7500, "2h 05m"), (4 * 3600 + 3 * 86400, "3d 4h")],
)
def test_durations_as_people_see_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("cpus", 0.01, MAX_CPUS),
        ("memory_bytes", MIN_MEMORY, MAX_MEMORY),
        ("gpus", 0, MAX_GPUS),
        ("gpu_memory_bytes", 0, MAX_MEMORY),
        ("seconds", 1, MAX_SECONDS),
    ],
)
def test_each_wish_has_bounds(field: str, least: float, most: float) -> None:
    for value in (least, most):
        assert getattr(Resources.model_validate({field: value}), field) == value
    for absurd in (least - 1, most + 1, -(10**30), 10**30, math.nan, math.inf, -math.inf, "much"):
        with pytest.raises(ValidationError, match=field):
            Resources.model_validate({field: absurd})


def test_an_unknown_wish_is_refused() -> None:
    with pytest.raises(ValidationError, match="memory"):
        Resources.model_validate({"memory": 1024})


@pytest.mark.parametrize("value", [Resources(), Capacity(cpus=1, memory_bytes=1), Allocation(cpus=1, memory_bytes=1)])
def test_sizes_never_change(value: Resources | Capacity | Allocation) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        value.cpus = 3


def test_what_is_said_wins_over_the_base_and_the_base_stays_as_it_was() -> None:
    base = Resources(cpus=2, memory_bytes=4 * GiB, gpus=1, seconds=600)
    wishes = Resources(memory_bytes=8 * GiB, seconds=60)
    assert wishes.merged_onto(base) == Resources(cpus=2, memory_bytes=8 * GiB, gpus=1, seconds=60)
    assert base.memory_bytes == 4 * GiB


def test_fields_that_came_through_json_as_null_are_not_wishes() -> None:
    base = Resources(cpus=2, memory_bytes=4 * GiB, gpus=1, seconds=600)
    travelled = Resources.model_validate(Resources(seconds=60).model_dump(mode="json"))
    assert travelled.merged_onto(base) == Resources(cpus=2, memory_bytes=4 * GiB, gpus=1, seconds=60)


@pytest.mark.parametrize(
    ("size", "whole"),
    [
        (Resources(), True),
        (Resources(gpus=1, seconds=9), True),
        (Resources(cpus=1), False),
        (Resources(memory_bytes=GiB), False),
    ],
)
def test_a_job_without_cpus_and_memory_wants_the_whole_machine(size: Resources, whole: bool) -> None:
    assert size.whole_machine is whole
