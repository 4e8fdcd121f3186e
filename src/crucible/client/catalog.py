"""The catalog, over the API: what can be rented and for how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.transport import Query, Transport
from crucible.core.offerfilter import OfferFilter
from crucible.core.views.catalog import (
    GpuPage,
    GpuView,
    PriceAuditView,
    PriceComparisonView,
    PricePage,
    PriceView,
    RefreshView,
    TypeView,
)

COMPARE_SECONDS = 120.0
REFRESH_SECONDS = 960.0
PAGE = 500


class CatalogApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def page(self, wanted: OfferFilter | None = None, *, limit: int = 50, cursor: str | None = None) -> PricePage:
        """Offers that fit, cheapest first."""
        query: Query = {**_query(wanted or OfferFilter()), "limit": limit, "cursor": cursor}
        return read(PricePage, self._transport.request("GET", "/api/v1/catalog", query=query))

    def walk(self, wanted: OfferFilter | None = None, *, cursor: str | None = None) -> Iterator[PriceView]:
        """All that fit, page by page; from a page's `next` on where that is given."""
        while True:
            found = self.page(wanted, limit=PAGE, cursor=cursor)
            yield from found.items
            cursor = found.next
            if cursor is None:
                return

    def type(self, name: str) -> TypeView:
        path = f"/api/v1/catalog/types/{quote(name, safe='')}"
        return read(TypeView, self._transport.request("GET", path))

    def gpus(self) -> tuple[GpuView, ...]:
        return read(GpuPage, self._transport.request("GET", "/api/v1/catalog/gpus")).items

    def audit(self) -> PriceAuditView:
        """What is wrong with the prices in use."""
        return read(PriceAuditView, self._transport.request("GET", "/api/v1/catalog/audit"))

    def refresh(self, provider: str, regions: Sequence[str] = ()) -> RefreshView:
        """Have the server ask a provider for its prices; of its known regions unless some are named."""
        body = {"provider": provider, "regions": list(regions)}
        response = self._transport.request(
            "POST", "/api/v1/catalog/refresh", body=body, repeat=False, seconds=REFRESH_SECONDS
        )
        return read(RefreshView, response)

    def compare(self, table: bytes, *, provider: str | None = None, over: float = 10.0) -> PriceComparisonView:
        """The prices in use beside another table (CSV); `over` percent apart they differ."""
        query: Query = {"provider": provider, "over": over}
        response = self._transport.request(
            "POST",
            "/api/v1/catalog/audit",
            content=table,
            headers={"Content-Type": "text/csv"},
            query=query,
            repeat=True,
            seconds=COMPARE_SECONDS,
        )
        return read(PriceComparisonView, response)


def _query(wanted: OfferFilter) -> dict[str, Any]:
    return wanted.model_dump(mode="json", exclude_defaults=True)
