"""Azure: the public retail prices, read page by page for each region."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from crucible.catalog.refresh.fetcher import Fetcher, bad_answer
from crucible.catalog.refresh.quotes import Quotes, amount_of

URL = "https://prices.azure.com/api/retail/prices"
HOST = "prices.azure.com"
MAX_PAGES = 300
HOURS = {"1 Year": ("reserved_1y", 8760), "3 Years": ("reserved_3y", 26280)}
"""Price column and hours of each reservation term. Azure's price of a reservation is for the whole term."""


def fetch(fetcher: Fetcher, quotes: Quotes, regions: Sequence[str]) -> None:
    for region in regions:
        read(_items(fetcher, region), quotes)


def read(items: Iterable[Mapping[str, object]], quotes: Quotes) -> None:
    """Read the hourly prices of Linux machines from the items: on demand, spot and reserved."""
    for item in items:
        instance_type, region = item.get("armSkuName"), item.get("armRegionName")
        if not isinstance(instance_type, str) or not isinstance(region, str) or instance_type not in quotes.shapes:
            continue
        column, hours = _column(item)
        if column and item.get("unitOfMeasure") == "1 Hour":
            price = item.get("unitPrice")
            amount = amount_of(price)
            hourly = price if amount is None else amount / hours
            quotes.add(region, instance_type, column, hourly, item.get("currencyCode"))


def _column(item: Mapping[str, object]) -> tuple[str, int]:
    """Return the price column that this item is for, empty if none, and the hours that its price covers."""
    sku, product = str(item.get("skuName")), str(item.get("productName"))
    if "Windows" in product or "Low Priority" in sku or "Cloud Services" in product or "Dedicated" in product:
        return "", 1
    if item.get("type") == "Reservation":
        return HOURS.get(str(item.get("reservationTerm")), ("", 1))
    if item.get("type") != "Consumption":
        return "", 1
    return "spot" if sku.endswith("Spot") else "on_demand", 1


def _items(fetcher: Fetcher, region: str) -> Iterator[Mapping[str, object]]:
    url: str | None = URL
    query: dict[str, str] | None = {"$filter": f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}'"}
    for _ in range(MAX_PAGES):
        if url is None:
            return
        page = fetcher.json(url, query=query)
        items = page.get("Items") if isinstance(page, dict) else None
        if not isinstance(page, dict) or not isinstance(items, list):
            raise bad_answer("azure", "A page of its response has no Items.")
        yield from (item for item in items if isinstance(item, dict))
        url, query = _next(page.get("NextPageLink")), None
    raise bad_answer("azure", f"Its response has more than {MAX_PAGES} pages for {region}.")


def _next(link: object) -> str | None:
    """Return the address of the next page, or None. Raises BadAnswer if it is on another host."""
    if not link:
        return None
    parts = urlsplit(str(link))
    if parts.scheme != "https" or parts.hostname != HOST:
        raise bad_answer("azure", "Its next page is on another host.")
    return str(link)
