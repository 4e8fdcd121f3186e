"""The catalog, over the API: what can be rented and for how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from pydantic import Field

from crucible.client.answers import read
from crucible.client.placeviews import OfferView
from crucible.client.transport import Query, Transport
from crucible.client.views import View
from crucible.core.offerfilter import OfferFilter

COMPARE_SECONDS = 120.0
REFRESH_SECONDS = 960.0
PAGE = 500


class TariffView(View):
    """What else a place charges and promises; None: not known."""

    egress_micros_per_gb: int | None = None
    storage_micros_per_gb_month: int | None = None
    commitment_years: int = 0
    interruption: tuple[float, float] | None = None
    dedicated: bool | None = None
    source: str = ""


class BillingView(View):
    granularity: int = 1
    minimum: int = 0


class PriceView(OfferView):
    """An offer of the catalog; `age_days` is its price's."""

    dated: str = ""
    age_days: int = 0
    billing: BillingView = BillingView()
    tariff: TariffView = TariffView()


class _Aged(View):
    """Dates of the prices in use, and how many are refused."""

    oldest: str | None = None
    newest: str | None = None
    oldest_days: int | None = None
    refused: int = 0


class PricePage(_Aged):
    items: tuple[PriceView, ...] = ()
    next: str | None = None
    total: int = 0


class GpuView(View):
    name: str
    vendor: str = ""
    memory_bytes: int = 0
    bandwidth_bytes_per_second: int = 0
    flops: dict[str, int] = Field(default_factory=dict)
    capability: str | None = None
    nvlink: bool = False
    groups: tuple[str, ...] = ()
    source: str = ""


class GpuPage(View):
    items: tuple[GpuView, ...] = ()


class TypeView(_Aged):
    """One instance type: its GPU, and its offers everywhere."""

    instance_type: str
    gpu: GpuView | None = None
    items: tuple[PriceView, ...] = ()


class PriceFindingView(View):
    """What is wrong with a row or a price; what is not `refused` is told and offered all the same."""

    rule: str
    refused: bool = True
    row: str = ""
    price: str | None = None
    what: str = ""
    fix: str = ""
    origin: str | None = None


class PriceAuditView(_Aged):
    day: str = ""
    rows: int = 0
    offers: int = 0
    warnings: int = 0
    items: tuple[PriceFindingView, ...] = ()


class DifferenceView(View):
    row: str
    market: str
    ours_micros: int
    theirs_micros: int
    percent: float


class PriceComparisonView(View):
    """Our prices beside another table; of long lists the first fifty."""

    provider: str
    ours: int = 0
    theirs: int = 0
    matched: int = 0
    matched_share: float = 0.0
    within: dict[str, int] = Field(default_factory=dict)
    spot_matched: int = 0
    spot_within: dict[str, int] = Field(default_factory=dict)
    over_percent: float = 0.0
    differences: tuple[DifferenceView, ...] = ()
    differences_count: int = 0
    missing_here: tuple[str, ...] = ()
    missing_here_count: int = 0
    missing_there: tuple[str, ...] = ()
    missing_there_count: int = 0
    unknown_types: int = 0
    unreadable: int = 0


class RefreshView(View):
    """What came of asking a provider: `changed` prices differ from before; `items` could not be used."""

    provider: str
    rows: int = 0
    prices: int = 0
    changed: int = 0
    regions: tuple[str, ...] = ()
    refused: int = 0
    items: tuple[PriceFindingView, ...] = ()
    notes: tuple[str, ...] = ()


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
