"""AWS: the public price list of EC2, and the Spot Advisor; with credentials, spot prices as they were last.

The price list of a region is a CSV file of some hundred megabytes; it is read as it arrives and never held whole.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Any

from crucible.catalog.refresh.fetcher import Fetcher, bad_answer
from crucible.catalog.refresh.quotes import Quotes, amount_of
from crucible.catalog.rows import INTERRUPTION
from crucible.catalog.sources import Clients

BULK = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
ADVISOR = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
MOST_BYTES = 2 * 1024**3
MOST_HISTORY = 200_000
HEAD_LINES = 20
"""Lines of the list's own description that stand before its head."""

NEEDED = ("TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "Operating System", "Tenancy")
PLAIN = {
    "Unit": ("Hrs",),
    "Operating System": ("Linux",),
    "Tenancy": ("Shared",),
    "Pre Installed S/W": ("NA", ""),
    "CapacityStatus": ("Used", ""),
    "MarketOption": ("OnDemand", ""),
}
"""What a plain Linux machine says in these columns; the last are not in every list."""
TERMS = {"1yr": "reserved_1y", "3yr": "reserved_3y"}
CLASSES = tuple(INTERRUPTION)


def fetch(fetcher: Fetcher, quotes: Quotes, regions: Sequence[str], clients: Clients | None) -> list[str]:
    for region in regions:
        if clients is None:
            read_list(fetcher.lines(BULK.format(region=region), limit=MOST_BYTES), quotes, region)
        else:
            read_products(_products(clients("pricing", "us-east-1"), region), quotes, region)
    read_advisor(fetcher.json(ADVISOR), quotes, regions)
    if clients is None:
        return ["Spot prices are typical ones, of the Spot Advisor: without boto3 and credentials AWS tells no others."]
    for region in regions:
        read_history(_history(clients("ec2", region)), quotes, region)
    return []


def read_list(lines: Iterable[str], quotes: Quotes, region: str) -> None:
    """Prices of plain Linux machines in a region's price list, on demand and reserved with nothing paid ahead."""
    reader = csv.reader(lines)
    try:
        head = next((cells for cells in islice(reader, HEAD_LINES) if "SKU" in cells), None)
        if head is None or any(name not in head for name in NEEDED):
            raise bad_answer("aws", f"What it answered for {region} is no price list.")
        for cells in reader:
            if len(cells) == len(head):
                _add(dict(zip(head, cells, strict=True)), quotes, region)
    except csv.Error as error:
        raise bad_answer("aws", f"The price list of {region} cannot be read: {error}.") from error


def _add(line: Mapping[str, str], quotes: Quotes, region: str) -> None:
    kind = line["Instance Type"]
    if kind not in quotes.shapes or any(line.get(name, "") not in fitting for name, fitting in PLAIN.items()):
        return
    column = _column(line)
    if column:
        quotes.add(region, kind, column, line["PricePerUnit"], line["Currency"])


def _column(line: Mapping[str, str]) -> str:
    if line["TermType"] == "OnDemand":
        return "on_demand"
    if line["TermType"] != "Reserved" or line.get("PurchaseOption") != "No Upfront":
        return ""
    standard = line.get("OfferingClass") == "standard"
    return TERMS.get(str(line.get("LeaseContractLength")).replace(" ", ""), "") if standard else ""


def read_products(products: Iterable[str], quotes: Quotes, region: str) -> None:
    """The same from the answers of GetProducts: each product is JSON in a text."""
    for text in products:
        try:
            product = json.loads(text)
            kind = product["product"]["attributes"]["instanceType"]
            terms = product["terms"].get("OnDemand", {}).values()
            dimensions = [one for term in terms for one in term["priceDimensions"].values()]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise bad_answer("aws", f"A product of {region} cannot be read: {type(error).__name__}.") from error
        for one in dimensions:
            if kind in quotes.shapes and one.get("unit") == "Hrs":
                for currency, price in one.get("pricePerUnit", {}).items():
                    quotes.add(region, kind, "on_demand", price, currency)


def read_advisor(answer: object, quotes: Quotes, regions: Sequence[str]) -> None:
    """How often spot machines are taken back, and what they typically cost: a part of what is paid on demand."""
    places = answer.get("spot_advisor") if isinstance(answer, dict) else None
    if not isinstance(places, dict):
        raise bad_answer("aws", "The Spot Advisor answered something else.")
    for region in regions:
        systems = places.get(region)
        advice = systems.get("Linux") if isinstance(systems, dict) else None
        for kind, told in (advice if isinstance(advice, dict) else {}).items():
            full = quotes.prices.get((region, kind), {}).get("on_demand")
            if full is None or not isinstance(told, dict):
                continue
            often, saved = told.get("r"), amount_of(told.get("s"))
            if isinstance(often, int) and 0 <= often < len(CLASSES):
                quotes.interruption[region, kind] = CLASSES[often]
            if saved is not None and 0 < saved < 100:
                quotes.add(region, kind, "spot", full / 1e6 * (1 - saved / 100))


def read_history(entries: Iterable[Mapping[str, object]], quotes: Quotes, region: str) -> None:
    """The newest spot price of each zone, and of these the median; it takes the place of the typical one."""
    newest: dict[tuple[str, str], tuple[str, float]] = {}
    for entry in entries:
        kind, zone, price = entry.get("InstanceType"), entry.get("AvailabilityZone"), amount_of(entry.get("SpotPrice"))
        if not isinstance(kind, str) or kind not in quotes.shapes or price is None or price <= 0:
            continue
        at = (kind, str(zone))
        newest[at] = max(newest.get(at, ("", 0.0)), (str(entry.get("Timestamp")), price))
    for kind in {kind for kind, _ in newest}:
        found = quotes.prices.setdefault((region, kind), {})
        found.pop("spot", None)
        quotes.add(region, kind, "spot", median(price for (name, _), (_, price) in newest.items() if name == kind))


def _products(client: Any, region: str) -> Iterator[str]:
    wanted = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
    for page in _pages(client, "get_products", ServiceCode="AmazonEC2", Filters=filters):
        yield from page["PriceList"]


def _history(client: Any) -> Iterator[Mapping[str, object]]:
    pages = _pages(client, "describe_spot_price_history", ProductDescriptions=["Linux/UNIX"])
    yield from islice((entry for page in pages for entry in page["SpotPriceHistory"]), MOST_HISTORY)


def _pages(client: Any, operation: str, **arguments: object) -> Iterator[Mapping[str, Any]]:
    try:
        yield from client.get_paginator(operation).paginate(**arguments)
    except Exception as error:  # the SDK's own, which has no names where it is not installed
        raise bad_answer("aws", f"{operation} failed: {error}.") from error
