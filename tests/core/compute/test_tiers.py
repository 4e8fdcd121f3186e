from __future__ import annotations

import pytest

from crucible.core.compute.resources import GiB, MiB, Resources
from crucible.core.compute.tiers import DEFAULT_TIER, TIERS, effective_resources, get_tier
from crucible.core.errors import UnknownName
from crucible.core.job.spec import JobSpec

HOUR = 3600

SIZES = {
    "CPU_SMALL": Resources(cpus=0.5, memory_bytes=512 * MiB, seconds=30),
    "CPU_LARGE": Resources(cpus=2, memory_bytes=4 * GiB, seconds=600),
    "GPU_SMALL": Resources(gpus=1, cpus=4, memory_bytes=16 * GiB, gpu_memory_bytes=16 * GiB, seconds=2 * HOUR),
    "GPU_MEDIUM": Resources(gpus=1, cpus=8, memory_bytes=32 * GiB, gpu_memory_bytes=16 * GiB, seconds=8 * HOUR),
    "GPU_LARGE": Resources(gpus=1, cpus=8, memory_bytes=32 * GiB, gpu_memory_bytes=24 * GiB, seconds=24 * HOUR),
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_the_size_of_each_tier(name: str, size: Resources) -> None:
    assert get_tier(name).resources == size


def test_there_are_these_tiers_and_the_smallest_is_the_default() -> None:
    assert list(TIERS) == list(SIZES)
    assert DEFAULT_TIER == "CPU_SMALL"


@pytest.mark.parametrize(
    ("name", "rate", "instance"),
    [
        ("CPU_SMALL", 20_000, ""),
        ("GPU_SMALL", 526_000, "g4dn.xlarge"),
        ("GPU_MEDIUM", 752_000, "g4dn.2xlarge"),
        ("GPU_LARGE", 2_012_000, "g5.2xlarge"),
    ],
)
def test_list_price_and_instance_type(name: str, rate: int, instance: str) -> None:
    assert (get_tier(name).rate, get_tier(name).instance_type) == (rate, instance)


def test_a_tier_as_it_is_shown() -> None:
    assert get_tier("GPU_SMALL").view().as_json() == {
        "id": "GPU_SMALL",
        "name": "Small GPU",
        "description": "One 16 GB GPU for first experiments",
        "cpu": 4.0,
        "memory": "16 GiB",
        "gpu": "1 x 16 GiB",
        "maxRuntime": "2h 00m",
        "costPerHour": 0.526,
    }


@pytest.mark.parametrize("name", SIZES)
def test_every_tier_is_shown_with_the_same_fields(name: str) -> None:
    shown = get_tier(name).view().as_json()
    assert list(shown) == ["id", "name", "description", "cpu", "memory", "gpu", "maxRuntime", "costPerHour"]
    assert (shown["gpu"] is None) == name.startswith("CPU")


@pytest.mark.parametrize("typed", ["gpu-small", "GPU_SMALL", "Gpu_Small", "gpu_small"])
def test_case_and_dashes_do_not_matter(typed: str) -> None:
    assert get_tier(typed).id == "GPU_SMALL"


@pytest.mark.parametrize(("typed", "meant"), [("GPU_SMAL", "GPU_SMALL"), ("gpu-medum", "GPU_MEDIUM")])
def test_a_wrong_name_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean '{meant}'.*crucible tiers") as caught:
        get_tier(typed)
    assert caught.value.meant == meant


def test_any_part_of_a_tier_can_be_overridden_alone() -> None:
    tier = get_tier("GPU_SMALL").resources
    overrides: dict[str, int] = {
        "seconds": 3 * HOUR,
        "memory_bytes": 20 * GiB,
        "gpu_memory_bytes": 24 * GiB,
        "cpus": 6,
        "gpus": 2,
    }
    for field, value in overrides.items():
        wanted = Resources.model_validate({field: value})
        assert effective_resources("GPU_SMALL", wanted) == tier.model_copy(update={field: value})


def test_without_a_tier_only_the_own_wishes_count() -> None:
    assert effective_resources(None, Resources()) == Resources()
    assert effective_resources(None, Resources(cpus=3)) == Resources(cpus=3)


def test_a_tier_survives_the_trip_of_its_spec_through_the_api() -> None:
    sent = JobSpec(command=("true",), tier="GPU_SMALL", resources=Resources(seconds=60))
    got = JobSpec.model_validate_json(sent.model_dump_json())
    expected = get_tier("GPU_SMALL").resources.model_copy(update={"seconds": 60})
    assert effective_resources(got.tier, got.resources) == expected
