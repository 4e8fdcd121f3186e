"""The prices that are shipped: what they cover, and that they hang together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from functools import cache

import pytest
from tests.catalog.builders import DAY, usd

from crucible.catalog import PROVIDERS
from crucible.catalog.compare import compare
from crucible.catalog.rows import Row
from crucible.catalog.store import shipped, shipped_on
from crucible.core.compute.gpus import GPUS, find_gpu
from crucible.core.compute.resources import GiB


@cache
def by_type() -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in shipped().rows:
        found[row.provider, row.instance_type].append(row)
    return found


def families(provider: str) -> set[str]:
    return {kind.split(".")[0] for name, kind in by_type() if name == provider}


def test_the_families_people_use_are_there() -> None:
    assert families("aws") >= {"g4dn", "g5", "g6", "g6e", "p3", "p4d", "p4de", "p5", "p5en", "m6i", "c6i", "r6i"}
    gcp = {kind.split("-")[0] for name, kind in by_type() if name == "gcp"}
    assert gcp >= {"g2", "a2", "a3", "n1", "e2", "n2", "c3", "cloud"}
    azure = " ".join(kind for name, kind in by_type() if name == "azure")
    assert all(part in azure for part in ("T4_v3", "A100_v4", "H100_v5", "A10_v5", "Standard_D", "Standard_F"))


@pytest.mark.parametrize(
    ("provider", "regions"),
    [
        (
            "aws",
            {"us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "ap-northeast-1"},
        ),
        ("gcp", {"us-central1", "us-east1", "us-west1", "europe-west1", "europe-west4", "asia-southeast1"}),
        ("azure", {"eastus", "eastus2", "westus2", "northeurope", "westeurope", "southeastasia", "japaneast"}),
    ],
)
def test_the_regions_people_use_are_there(provider: str, regions: set[str]) -> None:
    assert {row.region for row in shipped().rows if row.provider == provider} >= regions


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_type_has_one_size_wherever_it_is(provider: str) -> None:
    for (name, kind), rows in by_type().items():
        if name == provider:
            sizes = {(row.gpu, row.gpus, row.vcpus, row.memory_bytes) for row in rows}
            assert len(sizes) == 1, kind


def test_every_row_has_an_on_demand_price_and_none_is_dearer() -> None:
    for row in shipped().rows:
        assert row.on_demand is not None
        assert all(price <= row.on_demand for _, price in row.prices())


def test_gpus_are_called_by_the_names_of_the_table() -> None:
    known = {one.name for one in GPUS}
    assert {row.gpu for row in shipped().rows if row.gpu} <= known
    used = {row.gpu for row in shipped().rows}
    assert used >= {
        "T4",
        "V100-16GB",
        "A10G",
        "L4",
        "L40S",
        "A100-40GB-SXM",
        "A100-80GB-SXM",
        "H100-SXM",
        "H200",
        "B200",
    }


def grown(provider: str, prefix: str, region: str) -> Iterator[tuple[float, int]]:
    """Sizes of a family with one GPU, or none, and their prices."""
    for row in shipped().rows:
        fits = row.provider == provider and row.region == region and row.instance_type.startswith(prefix)
        if fits and row.gpus <= 1 and row.on_demand is not None:
            yield row.vcpus, row.on_demand


@pytest.mark.parametrize(
    ("provider", "prefix", "region"),
    [
        ("aws", "g4dn.", "us-east-1"),
        ("aws", "g5.", "eu-central-1"),
        ("aws", "m6i.", "ap-northeast-1"),
        ("gcp", "e2-standard-", "europe-west1"),
        ("gcp", "g2-standard-", "us-central1"),
        ("azure", "Standard_D", "westeurope"),
    ],
)
def test_a_larger_size_costs_more(provider: str, prefix: str, region: str) -> None:
    found = sorted(grown(provider, prefix, region))
    assert len(found) >= 4
    assert [price for _, price in found] == sorted(price for _, price in found)


@pytest.mark.parametrize(
    ("kind", "region", "price"),
    [
        ("g5.xlarge", "us-east-1", 1.006),
        ("p4d.24xlarge", "us-east-1", 21.957642),
        ("p5.48xlarge", "us-west-2", 55.04),
        ("g4dn.xlarge", "eu-west-1", 0.587),
        ("a2-highgpu-1g", "us-central1", 3.673385),
        ("g2-standard-4", "us-central1", 0.706832),
        ("Standard_NC24ads_A100_v4", "eastus", 3.673),
        ("Standard_ND96isr_H100_v5", "eastus", 98.32),
        ("gpu_8x_h100_sxm5", "us-west-3", 23.92),
    ],
)
def test_well_known_prices(kind: str, region: str, price: float) -> None:
    (row,) = [row for row in shipped().rows if (row.instance_type, row.region) == (kind, region)]
    assert row.on_demand == usd(price)


def test_modal_is_a_gpu_with_its_share_of_a_host() -> None:
    ((row,), (double,)) = (by_type()["modal", kind] for kind in ("A100-80GB", "A100-80GB:2"))
    assert (row.vcpus, row.memory_bytes, double.gpus) == (8.0, 32 * GiB, 2)
    assert double.on_demand == pytest.approx(2 * (row.on_demand or 0), abs=2)
    assert find_gpu(row.gpu).memory_bytes == 80 * GiB


def test_the_snapshot_has_a_day() -> None:
    assert date(2025, 1, 1) < shipped_on() < DAY


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_table_of_our_own_prices_agrees_with_us(provider: str) -> None:
    rows = [row for row in shipped().rows if row.provider == provider]
    lines = [f"{row.instance_type},{row.region},{(row.on_demand or 0) / 1e6:.6f}" for row in rows]
    found = compare(shipped().rows, "\n".join(["InstanceType,Region,Price", *lines]), provider)
    assert found.within(1e-6) == found.matched() == len(lines)
    assert found.over(1e-6) == []
    assert (found.missing_here, found.missing_there, found.unknown_types) == ((), (), 0)
