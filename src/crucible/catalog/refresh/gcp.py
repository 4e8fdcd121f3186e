"""Google Cloud: its billing catalog prices cores, memory and GPUs, whose sum is the price of a machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crucible.catalog.refresh.fetcher import Fetcher, bad_answer
from crucible.catalog.refresh.quotes import Quotes, amount_of
from crucible.catalog.rows import Row
from crucible.core.compute.resources import GiB
from crucible.core.secret import Secret

URL = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
"""The SKUs of Compute Engine."""
MAX_PAGES = 100
PAGE_SIZE = "5000"

FAMILIES = {
    "e2-": "E2 Instance",
    "n1-": "N1 Predefined Instance",
    "n2-": "N2 Instance",
    "c3-": "C3 Instance",
    "g2-": "G2 Instance",
    "a2-": "A2 Instance",
    "a3-highgpu-": "A3 Instance",
    "a3-megagpu-": "A3Plus Instance",
    "a3-ultragpu-": "A3Ultra Instance",
}
GPUS = {
    "T4": "Nvidia Tesla T4 GPU",
    "P100": "Nvidia Tesla P100 GPU",
    "V100-16GB": "Nvidia Tesla V100 GPU",
    "L4": "Nvidia L4 GPU",
    "A100-40GB-SXM": "Nvidia Tesla A100 GPU",
    "A100-80GB-SXM": "Nvidia Tesla A100 80GB GPU",
    "H100-SXM": "Nvidia H100 80GB GPU",
    "H200": "Nvidia H200 141GB GPU",
}
MEGA = "Nvidia H100 80GB Plus GPU"
_DESCRIPTION = re.compile(r"(?:Spot Preemptible )?(?P<part>.+?)(?: attached to Spot Preemptible VMs)? running in .+")


@dataclass
class Parts:
    """Prices of parts in dollars an hour, by region, market and part."""

    prices: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def machine(self, row: Row, region: str, market: str) -> float | None:
        """Return the price of a machine in dollars an hour, or None if the price of a part is missing."""
        family = next((name for start, name in FAMILIES.items() if row.instance_type.startswith(start)), None)
        if family is None:
            return None
        parts = [(row.vcpus, f"{family} Core"), (row.memory_bytes / GiB, f"{family} Ram")]
        if row.gpu:
            parts.append((row.gpus, MEGA if "megagpu" in row.instance_type else GPUS.get(row.gpu, "")))
        priced = [(amount, self.prices.get((region, market, name))) for amount, name in parts]
        return None if any(price is None for _, price in priced) else sum(n * price for n, price in priced if price)


def fetch(fetcher: Fetcher, quotes: Quotes, regions: Sequence[str], key: Secret) -> None:
    read(_skus(fetcher, key), quotes, regions)


def read(skus: Iterable[Mapping[str, object]], quotes: Quotes, regions: Sequence[str]) -> None:
    """Add the prices of the known machine types in these regions to the quotes."""
    parts = Parts()
    wanted = frozenset(regions)
    for sku in skus:
        _add(parts, sku, wanted, quotes)
    for region in regions:
        for instance_type, row in quotes.shapes.items():
            for market in ("on_demand", "spot"):
                price = parts.machine(row, region, market)
                if price is not None:
                    quotes.add(region, instance_type, market, price)


def _add(parts: Parts, sku: Mapping[str, object], wanted: frozenset[str], quotes: Quotes) -> None:
    text = sku.get("description")
    match = _DESCRIPTION.fullmatch(text) if isinstance(text, str) and len(text) < 300 else None
    regions = sku.get("serviceRegions")
    if match is None or not isinstance(text, str) or not isinstance(regions, list):
        return
    part, here = match["part"], wanted & {region for region in regions if isinstance(region, str)}
    if not here or part not in _PARTS:
        return
    # The market comes from the description: the category of some spot SKUs says on demand.
    market = "spot" if "Spot Preemptible" in text else "on_demand"
    price, currency = _price(sku)
    for region in here:
        if price is None or price <= 0 or currency != "USD":
            quotes.add(region, part, market, price, currency)
        else:
            parts.prices[region, market, part] = price


def _price(sku: Mapping[str, Any]) -> tuple[float | None, object]:
    """Return the amount and currency of the last tier; the first tier may be a free allowance."""
    try:
        rates = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"]
        unit = rates[-1]["unitPrice"]
        whole, nanos = amount_of(unit.get("units", 0)), amount_of(unit.get("nanos", 0))
        amount = None if whole is None or nanos is None else whole + nanos / 1e9
        return amount, unit.get("currencyCode")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None, "USD"


def _skus(fetcher: Fetcher, key: Secret) -> Iterator[Mapping[str, object]]:
    token = ""
    for _ in range(MAX_PAGES):
        query = {"pageSize": PAGE_SIZE, "currencyCode": "USD", **({"pageToken": token} if token else {})}
        page = fetcher.json(URL, query=query, headers={"X-Goog-Api-Key": key.reveal()})
        skus = page.get("skus") if isinstance(page, dict) else None
        if not isinstance(page, dict) or not isinstance(skus, list):
            raise bad_answer("gcp", "A page of its response has no SKUs.")
        yield from (sku for sku in skus if isinstance(sku, dict))
        next_token = page.get("nextPageToken")
        if not next_token:
            return
        if next_token == token or not isinstance(next_token, str):
            raise bad_answer("gcp", "It returned the same page twice.")
        token = next_token
    raise bad_answer("gcp", f"Its response has more than {MAX_PAGES} pages.")


_PARTS = frozenset(
    [*(f"{family} {part}" for family in FAMILIES.values() for part in ("Core", "Ram")), *GPUS.values(), MEGA]
)
