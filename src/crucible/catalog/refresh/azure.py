"""Azure's retail prices: public, paged, for every region."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from crucible.catalog.refresh.fetcher import Fetcher, bad_answer
from crucible.catalog.refresh.quotes import Quotes, amount_of

URL = "https://prices.azure.com/api/retail/prices"
HOST = "prices.azure.com"
MOST_PAGES = 300
HOURS = {"1 Year": ("reserved_1y", 8760), "3 Years": ("reserved_3y", 26280)}
"""A reservation's price is for its whole term."""


def fetch(fetcher: Fetcher, quotes: Quotes, regions: Sequence[str]) -> None:
    for region in regions:
        read(_items(fetcher, region), quotes)


def read(items: Iterable[Mapping[str, object]], quotes: Quotes) -> None:
    """Prices of Linux machines among these items: on demand, spot, and reserved by the hour."""
    for item in items:
        kind, region = item.get("armSkuName"), item.get("armRegionName")
        if not isinstance(kind, str) or not isinstance(region, str) or kind not in quotes.shapes:
            continue
        column, hours = _column(item)
        if column and item.get("unitOfMeasure") == "1 Hour":
            price = item.get("unitPrice")
            amount = amount_of(price)
            quotes.add(region, kind, column, price if amount is None else amount / hours, item.get("currencyCode"))


def _column(item: Mapping[str, object]) -> tuple[str, int]:
    """Which of our prices it is and for how many hours; empty: none of them."""
    sku, product = str(item.get("skuName")), str(item.get("productName"))
    if "Windows" in product or "Low Priority" in sku or "Cloud Services" in product or "Dedicated" in product:
        return "", 1
    if item.get("type") == "Reservation":
        return HOURS.get(str(item.get("reservationTerm")), ("", 1))
    if item.get("type") != "Consumption":
        return "", 1
    return "spot" if sku.endswith("Spot") else "on_demand", 1


def _items(fetcher: Fetcher, region: str) -> Iterator[Mapping[str, object]]:
    wanted = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}'"
    url: str | None = URL
    query: dict[str, str] | None = {"$filter": wanted}
    for _ in range(MOST_PAGES):
        if url is None:
            return
        page = fetcher.json(url, query=query)
        items = page.get("Items") if isinstance(page, dict) else None
        if not isinstance(page, dict) or not isinstance(items, list):
            raise bad_answer("azure", "It answered a page without Items.")
        yield from (item for item in items if isinstance(item, dict))
        url, query = _next(page.get("NextPageLink")), None
    raise bad_answer("azure", f"It answered more than {MOST_PAGES} pages for {region}.")


def _next(link: object) -> str | None:
    """The next page, if it is one of theirs."""
    if not link:
        return None
    parts = urlsplit(str(link))
    if parts.scheme != "https" or parts.hostname != HOST:
        raise bad_answer("azure", "It named a next page at another place.")
    return str(link)
