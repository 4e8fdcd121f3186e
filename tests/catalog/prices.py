"""Catalogs for tests: the shipped prices on a day of the test's own, or rows of the test and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import httpx2
from tests.catalog.refresh.providers import Handler
from tests.control.fakes import FakeBackend, FakeClock, InlineCalls

from crucible.catalog import Library, Stock
from crucible.catalog.rows import ParsedRows, Row
from crucible.catalog.sources import KEYS, Sources
from crucible.catalog.store import make_stock
from crucible.control.db.sqlite.inline import InlineDb
from crucible.control.resources.access import Access
from crucible.control.resources.catalog import Catalog
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.secret import Secret

DAY = 1_780_272_000.0
"""2026-06-01."""


def make_prices(
    folder: Path | None = None, *backends: FakeBackend, day: float = DAY, asked: Handler | None = None
) -> Catalog:
    """`asked` answers for every provider; nobody does unless it is given."""
    clock, calls = FakeClock(), InlineCalls()
    clock.time = day
    connected = ConnectedBackends({backend.name: backend for backend in backends})
    keys = {name: Secret("a-key") for name in KEYS}
    sources = Sources(keys, httpx2.MockTransport(asked or _nobody), lambda: None)
    return Catalog(Library(folder), connected, calls, clock, Access(InlineDb(), clock), sources)


def _nobody(_request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(503)


class OwnPrices(Library):
    """Rows instead of those that are shipped."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = ParsedRows(tuple(rows))
        self._stocks: dict[date, Stock] = {}

    def stock(self, day: date) -> Stock:
        seen = max(day, max(date.fromisoformat(row.dated) for row in self._rows.rows))
        if seen not in self._stocks:
            self._stocks[seen] = make_stock(self._rows, ParsedRows(()), seen)
        return self._stocks[seen]
