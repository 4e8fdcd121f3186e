"""AWS: the public price list of EC2 and the Spot Advisor; with credentials, current prices from the AWS SDK.

The public list of a region is a CSV file of several hundred megabytes, so it is parsed while it arrives.
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
MAX_LIST_BYTES = 2 * 1024**3
MAX_HISTORY = 200_000
HEAD_LINES = 20
"""The header is among the first lines of a list, after some lines about the list itself."""

NEEDED = ("TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "Operating System", "Tenancy")
PLAIN = {
    "Unit": ("Hrs",),
    "Operating System": ("Linux",),
    "Tenancy": ("Shared",),
    "Pre Installed S/W": ("NA", ""),
    "CapacityStatus": ("Used", ""),
    "MarketOption": ("OnDemand", ""),
}
"""Values of these columns for a plain Linux machine. Not every list has the last three columns."""
TERMS = {"1yr": "reserved_1y", "3yr": "reserved_3y"}
CLASSES = tuple(INTERRUPTION)


def fetch(fetcher: Fetcher, quotes: Quotes, regions: Sequence[str], clients: Clients | None) -> list[str]:
    """Add the prices of these regions to the quotes. Return notes for the user. `clients`: None without the SDK."""
    for region in regions:
        if clients is None:
            read_list(fetcher.lines(BULK.format(region=region), limit=MAX_LIST_BYTES), quotes, region)
        else:
            read_products(_products(clients("pricing", "us-east-1"), region), quotes, region)
    read_advisor(fetcher.json(ADVISOR), quotes, regions)
    if clients is None:
        return ["Spot prices are averages of the Spot Advisor; current ones require boto3 and AWS credentials."]
    for region in regions:
        read_history(_history(clients("ec2", region)), quotes, region)
    return []


def read_list(lines: Iterable[str], quotes: Quotes, region: str) -> None:
    """Read the price list of a region: plain Linux machines, on demand and reserved without upfront payment."""
    reader = csv.reader(lines)
    try:
        head = next((cells for cells in islice(reader, HEAD_LINES) if "SKU" in cells), None)
        if head is None or any(name not in head for name in NEEDED):
            raise bad_answer("aws", f"Its response for {region} is not a price list.")
        for cells in reader:
            if len(cells) == len(head):
                _add(dict(zip(head, cells, strict=True)), quotes, region)
    except csv.Error as error:
        raise bad_answer("aws", f"The price list of {region} cannot be read: {error}.") from error


def _add(line: Mapping[str, str], quotes: Quotes, region: str) -> None:
    instance_type = line["Instance Type"]
    if instance_type not in quotes.shapes:
        return
    if any(line.get(name, "") not in allowed for name, allowed in PLAIN.items()):
        return
    column = _column(line)
    if column:
        quotes.add(region, instance_type, column, line["PricePerUnit"], line["Currency"])


def _column(line: Mapping[str, str]) -> str:
    """Return the price column that this line is for, or an empty string."""
    if line["TermType"] == "OnDemand":
        return "on_demand"
    if line["TermType"] != "Reserved" or line.get("PurchaseOption") != "No Upfront":
        return ""
    standard = line.get("OfferingClass") == "standard"
    return TERMS.get(str(line.get("LeaseContractLength")).replace(" ", ""), "") if standard else ""


def read_products(products: Iterable[str], quotes: Quotes, region: str) -> None:
    """Read the on-demand prices of products of GetProducts, each a JSON document in a string."""
    for text in products:
        try:
            product = json.loads(text)
            instance_type = product["product"]["attributes"]["instanceType"]
            terms = product["terms"].get("OnDemand", {}).values()
            dimensions = [dimension for term in terms for dimension in term["priceDimensions"].values()]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise bad_answer("aws", f"A product of {region} cannot be read: {type(error).__name__}.") from error
        for dimension in dimensions:
            if instance_type in quotes.shapes and dimension.get("unit") == "Hrs":
                for currency, price in dimension.get("pricePerUnit", {}).items():
                    quotes.add(region, instance_type, "on_demand", price, currency)


def read_advisor(response: object, quotes: Quotes, regions: Sequence[str]) -> None:
    """Read the interruption classes of spot machines, and their average savings over the on-demand prices read before.

    The advisor's `r` is an index of CLASSES, its `s` the savings in percent.
    """
    by_region = response.get("spot_advisor") if isinstance(response, dict) else None
    if not isinstance(by_region, dict):
        raise bad_answer("aws", "The response of the Spot Advisor is not valid.")
    for region in regions:
        systems = by_region.get(region)
        advice = systems.get("Linux") if isinstance(systems, dict) else None
        for instance_type, entry in (advice if isinstance(advice, dict) else {}).items():
            on_demand = quotes.prices.get((region, instance_type), {}).get("on_demand")
            if on_demand is None or not isinstance(entry, dict):
                continue
            interruption, savings = entry.get("r"), amount_of(entry.get("s"))
            if isinstance(interruption, int) and 0 <= interruption < len(CLASSES):
                quotes.interruption[region, instance_type] = CLASSES[interruption]
            if savings is not None and 0 < savings < 100:
                quotes.add(region, instance_type, "spot", on_demand / 1e6 * (1 - savings / 100))


def read_history(entries: Iterable[Mapping[str, object]], quotes: Quotes, region: str) -> None:
    """Replace the average spot prices of a region by the median, over its zones, of each zone's newest price."""
    newest: dict[tuple[str, str], tuple[str, float]] = {}
    for entry in entries:
        instance_type, price = entry.get("InstanceType"), amount_of(entry.get("SpotPrice"))
        if not isinstance(instance_type, str) or instance_type not in quotes.shapes or price is None or price <= 0:
            continue
        key = (instance_type, str(entry.get("AvailabilityZone")))
        newest[key] = max(newest.get(key, ("", 0.0)), (str(entry.get("Timestamp")), price))
    for instance_type in {name for name, _ in newest}:
        # `add` keeps the lower of two prices, so the average has to go first.
        quotes.prices.setdefault((region, instance_type), {}).pop("spot", None)
        zones = [price for (name, _), (_, price) in newest.items() if name == instance_type]
        quotes.add(region, instance_type, "spot", median(zones))


def _products(client: Any, region: str) -> Iterator[str]:
    criteria = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in criteria.items()]
    for page in _pages(client, "get_products", ServiceCode="AmazonEC2", Filters=filters):
        yield from page["PriceList"]


def _history(client: Any) -> Iterator[Mapping[str, object]]:
    pages = _pages(client, "describe_spot_price_history", ProductDescriptions=["Linux/UNIX"])
    yield from islice((entry for page in pages for entry in page["SpotPriceHistory"]), MAX_HISTORY)


def _pages(client: Any, operation: str, **arguments: object) -> Iterator[Mapping[str, Any]]:
    try:
        yield from client.get_paginator(operation).paginate(**arguments)
    except Exception as error:  # the SDK's errors cannot be named here: it may not be installed
        raise bad_answer("aws", f"{operation} failed: {error}.") from error
