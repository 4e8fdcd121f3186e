"""A catalog that holds the rows of a test and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from crucible.catalog import Library, Stock
from crucible.catalog.rows import Read, Row
from crucible.catalog.store import stocked


class OwnPrices(Library):
    """Rows instead of those that are shipped."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = Read(tuple(rows))
        self._stocks: dict[date, Stock] = {}

    def stock(self, day: date) -> Stock:
        seen = max(day, max(date.fromisoformat(row.dated) for row in self._rows.rows))
        if seen not in self._stocks:
            self._stocks[seen] = stocked(self._rows, Read(()), seen)
        return self._stocks[seen]
