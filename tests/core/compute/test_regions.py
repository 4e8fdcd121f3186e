"""Which regions and zones a job's regions allow."""

from __future__ import annotations

import pytest

from crucible.backends.context import shipped_catalog
from crucible.core.compute.regions import in_regions


@pytest.mark.parametrize(
    ("region", "wanted"),
    [
        ("us-east-1", "us-east-1"),
        ("us-east-1a", "us-east-1"),
        ("us-east-1-bos-1a", "us-east-1"),
        ("us-central1-a", "us-central1"),
        ("simulated-east-a", "simulated-east"),
        ("us-east-1a", "us"),
        ("us-east-1a", "us-"),
    ],
)
def test_a_region_and_its_zones_are_in_it(region: str, wanted: str) -> None:
    assert in_regions(region, [wanted])
    assert in_regions(region, ["elsewhere", wanted])


@pytest.mark.parametrize(
    ("region", "wanted"),
    [
        ("x-10", "x-1"),
        ("eastus2", "eastus"),
        ("us-east-12a", "us-east-1"),
        ("us-east-1", "us-east-1a"),
        ("us-east-1a", "us-east-1b"),
        ("us-east-1", "u"),
        ("", "us"),
    ],
)
def test_another_region_is_not_in_it(region: str, wanted: str) -> None:
    assert not in_regions(region, [wanted])
    assert not in_regions(region, [])


def test_no_region_of_the_catalog_is_in_another() -> None:
    names = shipped_catalog().regions()
    assert [(one, other) for one in names for other in names if one != other and in_regions(one, [other])] == []
