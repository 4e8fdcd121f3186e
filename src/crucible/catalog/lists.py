"""Price lists: what holds for every row that was read from one provider's page."""

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
"""Those with prices. `local` has none: this computer is free, and what it has is asked of it."""

WITHOUT_INTERFACE = frozenset({"colab", "modal", "paperspace"})
"""Those that show their prices on a page for people alone."""


@dataclass(frozen=True)
class PriceList:
    """`startup_seconds`: from the request to a machine that can run something, typically. `longest_seconds`: after
    which the provider ends what runs; None: never.

    `egress_per_gb` and `storage_per_gb_month` in micro-dollars; None: not known.
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
    """All of them, by name; read when first asked for."""
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
