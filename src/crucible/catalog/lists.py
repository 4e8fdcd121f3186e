"""Price lists: the terms that apply to every price read from one page of a provider."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from crucible.core.compute.offers import Billing
from crucible.core.compute.pricing import MICROS

PROVIDERS = ("aws", "azure", "colab", "gcp", "lambda", "modal", "paperspace")
"""Providers with prices in the catalog. `local` is missing: this computer is free, and its size is detected."""

WITHOUT_INTERFACE = frozenset({"colab", "modal", "paperspace"})
"""Providers that publish prices on web pages only, not through an API."""


@dataclass(frozen=True)
class PriceList:
    """`startup_seconds`: typical time from the request until the machine can run something. `longest_seconds`: the
    provider's maximum run time, or None if there is none.

    `egress_per_gb` and `storage_per_gb_month` are in micro-dollars, None if unknown.
    """

    name: str
    provider: str
    billing: Billing
    startup_seconds: float
    longest_seconds: float | None
    dedicated: bool
    egress_per_gb: int | None
    storage_per_gb_month: int | None
    source: str
    dated: str


@cache
def price_lists() -> Mapping[str, PriceList]:
    """Return all price lists by name. They are read on the first call."""
    text = (files("crucible.catalog") / "data" / "lists.csv").read_text(encoding="utf-8")
    return MappingProxyType({row["list"]: _read(row) for row in csv.DictReader(text.splitlines())})


def _read(row: Mapping[str, str]) -> PriceList:
    return PriceList(
        name=row["list"],
        provider=row["provider"],
        billing=Billing(int(row["granularity"]), int(row["minimum"])),
        startup_seconds=float(row["startup"]),
        longest_seconds=float(row["longest"]) if row["longest"] else None,
        dedicated=row["dedicated"] == "yes",
        egress_per_gb=_money(row["egress_per_gb"]),
        storage_per_gb_month=_money(row["storage_per_gb_month"]),
        source=row["source"],
        dated=row["dated"],
    )


def _money(text: str) -> int | None:
    return round(float(text) * MICROS) if text else None
