"""The catalog's routes over the real catalog, on a day of the test's own; nothing else of a control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from tests.control.fakes import FakeBackend, FakeClock, InlineCalls

from crucible.catalog import Library
from crucible.control.places import Places
from crucible.control.prices import Prices
from crucible.core.offerfilter import OfferFilter
from crucible.core.people import Identity
from crucible.server import catalog, failures

DAY = 1_780_272_000.0
"""2026-06-01."""


def make_prices(folder: Path | None = None, *backends: FakeBackend, day: float = DAY) -> Prices:
    clock, calls = FakeClock(), InlineCalls()
    clock.time = day
    return Prices(Library(folder), Places({backend.name: backend for backend in backends}, calls), calls, clock)


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

    async def compare_prices(self, text: str, *, provider: str | None, over: float) -> dict[str, Any]:
        return await self.prices.compared(text, provider, over)


def catalog_app(prices: Prices | None = None) -> FastAPI:
    app = FastAPI()
    app.state.control = CatalogControl(prices or make_prices())
    failures.install(app)
    app.include_router(catalog.router)
    return app
