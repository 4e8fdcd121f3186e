"""The catalog's routes over the real catalog, on a day of the test's own; nothing else of a control plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from tests.catalog.refresh.providers import Handler
from tests.control.fakes import FakeBackend, FakeClock, InlineCalls

from crucible.catalog import Library
from crucible.catalog.sources import KEYS, Sources
from crucible.control.places import Places
from crucible.control.prices import Prices
from crucible.core.offerfilter import OfferFilter
from crucible.core.people import Identity
from crucible.core.secret import Secret
from crucible.server import catalog, failures

DAY = 1_780_272_000.0
"""2026-06-01."""


def make_prices(
    folder: Path | None = None, *backends: FakeBackend, day: float = DAY, asked: Handler | None = None
) -> Prices:
    """`asked` answers for every provider; nobody does unless it is given."""
    clock, calls = FakeClock(), InlineCalls()
    clock.time = day
    places = Places({backend.name: backend for backend in backends}, calls)
    keys = {name: Secret("a-key") for name in KEYS}
    sources = Sources(keys, httpx2.MockTransport(asked or _nobody), lambda: None)
    return Prices(Library(folder), places, calls, clock, sources)


def _nobody(_request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(503)


class CatalogControl:
    def __init__(self, prices: Prices) -> None:
        self.prices = prices

    def at(self, who: Identity) -> CatalogControl:
        return self

    async def catalog(self, wanted: OfferFilter, *, limit: int, cursor: str | None) -> dict[str, Any]:
        return await self.prices.page(wanted, limit=limit, cursor=cursor)

    async def catalog_type(self, name: str) -> dict[str, Any]:
        return await self.prices.type(name)

    async def catalog_audit(self) -> dict[str, Any]:
        return await self.prices.audited()

    async def refresh_prices(self, provider: str, regions: Sequence[str]) -> dict[str, Any]:
        return await self.prices.refresh(provider, regions)

    async def compare_prices(self, text: str, *, provider: str | None, over: float) -> dict[str, Any]:
        return await self.prices.compared(text, provider, over)


def catalog_app(prices: Prices | None = None) -> FastAPI:
    app = FastAPI()
    app.state.control = CatalogControl(prices or make_prices())
    failures.install(app)
    app.include_router(catalog.router)
    return app
