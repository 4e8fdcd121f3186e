"""Google Cloud's billing catalog: prices of cores, memory and GPUs apart, which make up a machine's."""

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
"""Compute Engine's."""
MOST_PAGES = 100
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
_RUNNING = re.compile(r"(?:Spot Preemptible )?(?P<thing>.+?)(?: attached to Spot Preemptible VMs)? running in .+")


@dataclass
class Parts:
    """Dollars an hour of each part, by region, market and what it is called."""

    prices: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def machine(self, row: Row, region: str, market: str) -> float | None:
        """All parts of a machine together; None unless all are priced."""
        family = next((name for start, name in FAMILIES.items() if row.instance_type.startswith(start)), None)
        if family is None:
            return None
        parts = [(row.vcpus, f"{family} Core"), (row.memory_bytes / GiB, f"{family} Ram")]
        if row.gpu:
            parts.append((row.gpus, MEGA if "megagpu" in row.instance_type else GPUS.get(row.gpu, "")))
        found = [(amount, self.prices.get((region, market, name))) for amount, name in parts]
        return None if any(price is None for _, price in found) else sum(n * price for n, price in found if price)


def fetch(fetcher: Fetcher, quotes: Quotes, regions: Sequence[str], key: Secret) -> None:
    read(_skus(fetcher, key), quotes, regions)


def read(skus: Iterable[Mapping[str, object]], quotes: Quotes, regions: Sequence[str]) -> None:
    """Prices of the known machine types in these regions, put together from their parts."""
    parts = Parts()
    wanted = frozenset(regions)
    for sku in skus:
        _add(parts, sku, wanted, quotes)
    for region in regions:
        for kind, row in quotes.shapes.items():
            for market in ("on_demand", "spot"):
                price = parts.machine(row, region, market)
                if price is not None:
                    quotes.add(region, kind, market, price)


def _add(parts: Parts, sku: Mapping[str, object], wanted: frozenset[str], quotes: Quotes) -> None:
    text = sku.get("description")
    found = _RUNNING.fullmatch(text) if isinstance(text, str) and len(text) < 300 else None
    places = sku.get("serviceRegions")
    if found is None or not isinstance(text, str) or not isinstance(places, list):
        return
    here = wanted & {place for place in places if isinstance(place, str)}
    if not here or found["thing"] not in _THINGS:
        return
    # Some spot prices are filed as on demand; what they are called is right.
    market = "spot" if "Spot Preemptible" in text else "on_demand"
    price, currency = _price(sku)
    for region in here:
        if price is None or price <= 0 or currency != "USD":
            quotes.add(region, found["thing"], market, price, currency)
        else:
            parts.prices[region, market, found["thing"]] = price


def _price(sku: Mapping[str, Any]) -> tuple[float | None, object]:
    """Of the last tier: the first may be free for so many hours."""
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
    for _ in range(MOST_PAGES):
        query = {"pageSize": PAGE_SIZE, "currencyCode": "USD", **({"pageToken": token} if token else {})}
        page = fetcher.json(URL, query=query, headers={"X-Goog-Api-Key": key.reveal()})
        skus = page.get("skus") if isinstance(page, dict) else None
        if not isinstance(page, dict) or not isinstance(skus, list):
            raise bad_answer("gcp", "It answered a page without SKUs.")
        yield from (sku for sku in skus if isinstance(sku, dict))
        following = page.get("nextPageToken")
        if not following:
            return
        if following == token or not isinstance(following, str):
            raise bad_answer("gcp", "It answered the same page again.")
        token = following
    raise bad_answer("gcp", f"It answered more than {MOST_PAGES} pages.")


_THINGS = frozenset(
    [*(f"{family} {part}" for family in FAMILIES.values() for part in ("Core", "Ram")), *GPUS.values(), MEGA]
)
