"""The catalog's routes over the real catalog, on a day of the test's own; nothing else of a control plane."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx2
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.catalog.refresh.providers import Handler
from tests.control.fakes import FakeBackend, FakeClock, InlineCalls

from crucible.catalog import Library
from crucible.catalog.sources import KEYS, Sources
from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.resources.access import Access
from crucible.control.resources.catalog import Catalog
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret
from crucible.server.http import error_handlers
from crucible.server.routes import catalog
from crucible.server.security.auth import IDENTITY

DAY = 1_780_272_000.0
"""2026-06-01."""


def make_prices(
    folder: Path | None = None, *backends: FakeBackend, day: float = DAY, asked: Handler | None = None
) -> Catalog:
    """`asked` answers for every provider; nobody does unless it is given."""
    clock, calls = FakeClock(), InlineCalls()
    clock.time = day
    places = ConnectedBackends({backend.name: backend for backend in backends}, calls)
    keys = {name: Secret("a-key") for name in KEYS}
    sources = Sources(keys, httpx2.MockTransport(asked or _nobody), lambda: None)
    return Catalog(Library(folder), places, calls, clock, Access(InlineDb(), clock), sources)


def _nobody(_request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(503)


@dataclass(frozen=True)
class CatalogControl:
    """The one resource that these routes ask."""

    catalog: Catalog


def catalog_app(prices: Catalog | None = None) -> FastAPI:
    app = FastAPI()
    app.add_middleware(_AsOwner)
    app.state.control = CatalogControl(prices or make_prices())
    error_handlers.add_error_handlers(app)
    app.include_router(catalog.router)
    return app


class _AsOwner:
    """Every request is the owner's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, IDENTITY: OWNER}, receive, send)
