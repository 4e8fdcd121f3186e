"""The catalog of offers and prices. Reading it takes a while, so it runs off the event loop."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from crucible.catalog import PROVIDERS, Library, Need, Stock
from crucible.catalog.compare import compare as compare_tables
from crucible.catalog.index import Key, sort_key
from crucible.catalog.sources import Sources
from crucible.control.jobs import cursors
from crucible.control.jobs.views import offer_view
from crucible.control.resources.access import Access
from crucible.control.runtime.ports import Calls, Clock
from crucible.control.scheduling.backends import ConnectedBackends, why_unconnected
from crucible.core.compute.gpus import find_gpu
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.compute.offers import Offer, Tariff
from crucible.core.errors import NotFound, UnknownName
from crucible.core.people.identity import Identity
from crucible.core.views.catalog import (
    GpuView,
    PriceAuditView,
    PriceComparisonView,
    PricePage,
    PriceView,
    RefreshView,
    TariffView,
    TypeView,
)

if TYPE_CHECKING:
    from crucible.catalog.refresh import RefreshResult

LANE = "catalog"
READ_SECONDS = 30.0
COMPARE_SECONDS = 60.0
REFRESH_SECONDS = 900.0
MAX_REFUSED = 50
_MARK = "c1:"

T = TypeVar("T")


@dataclass(frozen=True)
class UnconnectedOffers:
    """Offers of providers that are not connected, and the prices that they were made from.

    `revision`: of the connected backends.
    """

    offers: tuple[Offer, ...]
    stock: Stock
    revision: int = 0


class Catalog:
    def __init__(
        self,
        library: Library,
        backends: ConnectedBackends,
        calls: Calls,
        clock: Clock,
        access: Access,
        sources: Sources | None = None,
    ) -> None:
        """`sources`: where new prices are fetched from (default: the providers' price APIs)."""
        self._access = access
        self._sources = sources or Sources()
        self._library = library
        self._backends = backends
        self._cached: UnconnectedOffers | None = None
        self._calls = calls
        self._clock = clock

    async def page(self, offer_filter: OfferFilter, *, limit: int, cursor: str | None) -> PricePage:
        """Return offers that match, cheapest first, including those of providers that are not connected.

        Raises UnknownName, and BadInput for an invalid cursor.
        """
        after = read_cursor(cursor)
        return await self._run(lambda: self._page(self._stock(), catalog_need(offer_filter), limit, after))

    async def instance_type(self, name: str) -> TypeView:
        """Return every offer of one instance type, and its GPU. Raises NotFound, with the nearest name."""
        return await self._run(lambda: self._type(self._stock(), name))

    async def unconnected(self) -> UnconnectedOffers:
        """Return today's offers of providers that are not connected; the same object until a price changes."""
        return await self._run(lambda: self._unconnected(self._stock()))

    async def audit(self) -> PriceAuditView:
        """Return the audit of the prices in use today."""
        return await self._run(lambda: _audit(self._stock()))

    async def compare(self, who: Identity, text: str, *, provider: str | None, over: float) -> PriceComparisonView:
        """Compare the prices in use with another table; `over` is the smallest difference to list (0.1: 10 %).

        Raises BadInput if `text` is not such a table.
        """
        who.require_submitter()
        rows = (await self._run(self._stock)).rows
        return await self._run(lambda: compare_tables(rows, text, provider).view(over), COMPARE_SECONDS)

    async def refresh(self, who: Identity, provider: str, regions: Sequence[str]) -> RefreshView:
        """Fetch the prices of a provider. If a fetched row is unusable, the old price stays.

        Raises BadInput if the provider has no price API or needs a key, Unreachable if it does not respond properly.
        """
        await self._access.require_operator(who, "catalog.refresh", provider)
        if provider not in PROVIDERS:
            raise _no_provider(provider)

        def work() -> RefreshView:
            # Imported here because it loads an HTTP client, which a starting server does not need.
            from crucible.catalog.refresh import refresh

            before = self._rates(provider)
            refreshed = refresh(self._library, provider, regions, self.today(), self._sources)
            changed = sum(before.get(at) != rate for at, rate in self._rates(provider).items())
            return _refresh_view(provider, refreshed, changed)

        return await self._calls.run(f"{LANE}:{provider}", work, REFRESH_SECONDS)

    def _rates(self, provider: str) -> dict[object, int]:
        """Return every price of a provider, by region, instance type and market."""
        catalog = self._stock().catalog
        offers = catalog.offers(Need(providers=(provider,))) if provider in catalog.providers() else []
        return {sort_key(offer)[1:]: offer.rate for offer in offers}

    async def _run(self, work: Callable[[], T], seconds: float = READ_SECONDS) -> T:
        return await self._calls.run(LANE, work, seconds)

    def _stock(self) -> Stock:
        return self._library.stock(self.today())

    def today(self) -> date:
        return datetime.fromtimestamp(self._clock.now(), UTC).date()

    def _unconnected(self, stock: Stock) -> UnconnectedOffers:
        revision = self._backends.revision
        if self._cached is None or self._cached.stock is not stock or self._cached.revision != revision:
            reasons = {name: why for name in stock.catalog.providers() if (why := self._why_not(name))}
            offers = stock.catalog.offers(Need(providers=tuple(reasons))) if reasons else ()
            self._cached = UnconnectedOffers(
                tuple(replace(offer, why_not=reasons[offer.backend]) for offer in offers), stock, revision
            )
        return self._cached

    def _why_not(self, provider: str) -> str:
        """Return why this provider cannot run jobs here, and how to connect it; empty if it is connected."""
        return "" if self._backends.has(provider) else why_unconnected(provider)

    def _page(self, stock: Stock, need: Need, limit: int, after: Key | None) -> PricePage:
        offers = stock.catalog.offers(need, after=after, limit=limit + 1)
        page = offers[:limit]
        return PricePage(
            items=tuple(self._price(offer, stock.day) for offer in page),
            next=write_cursor(sort_key(page[-1])) if len(offers) > limit else None,
            total=stock.catalog.count(need),
            **ages(stock),
        )

    def _type(self, stock: Stock, name: str) -> TypeView:
        try:
            offers = stock.catalog.offers(Need(instance_type=name))
        except UnknownName:
            raise _no_type(name, stock.catalog.instance_types()) from None
        model = offers[0].capacity.gpu_name
        return TypeView(
            instance_type=name,
            gpu=GpuView.from_gpu(find_gpu(model)) if model else None,
            items=tuple(self._price(offer, stock.day) for offer in offers),
            **ages(stock),
        )

    def _price(self, offer: Offer, day: date) -> PriceView:
        return PriceView(
            **dict(offer_view(replace(offer, why_not=self._why_not(offer.backend)))),
            tariff=_tariff_view(offer.tariff),
            age_days=(day - date.fromisoformat(offer.dated)).days,
        )


def catalog_need(offer_filter: OfferFilter) -> Need:
    return Need(
        gpu=offer_filter.gpu,
        gpus=offer_filter.gpus,
        gpu_memory_bytes=offer_filter.gpu_memory,
        vcpus=offer_filter.cpus,
        memory_bytes=offer_filter.memory,
        providers=tuple(_providers(offer_filter)),
        regions=offer_filter.region,
        markets=offer_filter.market,
        instance_type=offer_filter.type,
        max_rate=offer_filter.max_rate,
    )


def _providers(offer_filter: OfferFilter) -> Iterator[str]:
    for name in offer_filter.provider:
        if name not in PROVIDERS:
            raise _no_provider(name)
        yield name


def _no_provider(name: str) -> UnknownName:
    """Return an error that names all providers: the nearest in spelling ('amazon': lambda) is seldom what was meant."""
    bare = UnknownName("provider", name, PROVIDERS)
    return UnknownName("provider", name, PROVIDERS, fix=f"Known: {', '.join(PROVIDERS)}.") if bare.meant else bare


def write_cursor(key: Key) -> str:
    return cursors.encode_cursor(_MARK, json.dumps(key))


def read_cursor(cursor: str | None) -> Key | None:
    """Return the offer that a page ended with. Raises BadInput for an invalid cursor."""
    if cursor is None:
        return None
    try:
        rate, provider, region, kind, market, years = json.loads(cursors.decode_cursor(_MARK, cursor) or "")
        return int(rate), str(provider), str(region), str(kind), str(market), int(years)
    except (ValueError, TypeError, RecursionError):
        raise cursors.bad_cursor("cheapest") from None


def _no_type(name: str, known: tuple[str, ...]) -> NotFound:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    fix = f"{hint}`crucible catalog list` lists them all."
    return NotFound(f"The catalog has no instance type {name!r}.", fix=fix, meant=near[0] if near else None)


def _tariff_view(tariff: Tariff) -> TariffView:
    return TariffView(
        egress_micros_per_gb=tariff.egress_per_gb,
        storage_micros_per_gb_month=tariff.storage_per_gb_month,
        commitment_years=tariff.commitment_years,
        interruption=tariff.interruption or None,
        dedicated=tariff.dedicated,
        source=tariff.source,
    )


def ages(stock: Stock) -> dict[str, Any]:
    """Return the dates of the prices in use and how many are refused, as the fields of a view."""
    days = {"oldest": stock.oldest, "newest": stock.newest, "oldest_days": stock.oldest_days}
    return {**days, "refused": len(stock.refused)}


def _audit(stock: Stock) -> PriceAuditView:
    return PriceAuditView(
        day=stock.day.isoformat(),
        rows=len(stock.rows),
        offers=len(stock.catalog),
        warnings=len(stock.findings) - len(stock.refused),
        items=tuple(finding.view for finding in stock.findings),
        **ages(stock),
    )


def _refresh_view(provider: str, refreshed: RefreshResult, changed: int) -> RefreshView:
    return RefreshView(
        provider=provider,
        rows=len(refreshed.rows),
        prices=sum(len(row.prices()) for row in refreshed.rows),
        changed=changed,
        regions=tuple(sorted({row.region for row in refreshed.rows})),
        refused=len(refreshed.refused),
        items=tuple(finding.view for finding in refreshed.refused[:MAX_REFUSED]),
        notes=tuple(refreshed.notes),
    )
