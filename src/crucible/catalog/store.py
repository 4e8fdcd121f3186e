"""The library: the shipped snapshot, and over it what was refreshed here; read when first asked for."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path

from crucible.catalog.audit import audit, sound
from crucible.catalog.findings import Finding
from crucible.catalog.index import Catalog
from crucible.catalog.lists import PROVIDERS
from crucible.catalog.rows import Read, Row, read_rows, write_rows
from crucible.core.errors import DiskFull, Trouble

LARGEST_FILE = 32 * 1024**2


@dataclass(frozen=True)
class Stock:
    """What is offered on a day, and what the audit found. `oldest`, `newest`: dates of the prices offered."""

    catalog: Catalog
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    day: date

    @property
    def oldest(self) -> str | None:
        return min((row.dated for row in self.rows), default=None)

    @property
    def newest(self) -> str | None:
        return max((row.dated for row in self.rows), default=None)

    @property
    def oldest_days(self) -> int | None:
        return None if self.oldest is None else (self.day - date.fromisoformat(self.oldest)).days

    @property
    def refused(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.refused)


@cache
def shipped() -> Read:
    """The rows that came with this version."""
    data = files("crucible.catalog") / "data"
    found = [read_rows((data / f"{name}.csv").read_text(encoding="utf-8"), name, f"{name}.csv") for name in PROVIDERS]
    return _joined(found)


@cache
def made() -> date:
    """The day of the newest price that came with this version."""
    return date.fromisoformat(max(row.dated for row in shipped().rows))


class Library:
    """`folder`: where refreshed rows are kept, a file for each provider; None: nowhere."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._stock: tuple[object, Stock] | None = None
        self._renewing = threading.Lock()

    def stock(self, day: date) -> Stock:
        """What is offered; read again when a file or the day has changed.

        A clock that is behind this version's own prices makes them no worse: the day is theirs then.
        """
        seen = max(day, made())
        stamp = (seen, self._stamps())
        if self._stock is None or self._stock[0] != stamp:
            self._stock = (stamp, stocked(shipped(), self._refreshed(), seen))
        return self._stock[1]

    def keep(self, provider: str, rows: Sequence[Row]) -> None:
        """Put refreshed rows in the place of those of the last time; all at once or not at all."""
        if self._folder is None:
            raise Trouble("There is no folder for refreshed prices.", fix="Start the server with a state folder.")
        text = write_rows(sorted(rows, key=lambda row: row.key))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _replace(self._folder / f"{provider}.csv", text)
        except OSError as error:
            what = f"The refreshed prices of {provider} cannot be written."
            fix = f"Make room, or let the server write to {self._folder}; the old prices are in use."
            raise DiskFull(what, why=f"{error}.", fix=fix) from error

    def renew(self, provider: str, rows: Sequence[Row], day: date) -> tuple[Finding, ...]:
        """Keep those of these rows that the audit lets pass, over what was kept before; the findings on the others."""
        refused, good = judged(shipped().rows, rows, day)
        if good:
            with self._renewing:
                self.keep(provider, [*good, *uncovered(self.refreshed(provider), good)])
        return refused

    def refreshed(self, provider: str) -> tuple[Row, ...]:
        """The rows that are kept for this provider, good or bad."""
        return tuple(row for row in self._refreshed().rows if row.provider == provider)

    def _refreshed(self) -> Read:
        return _joined(read_rows(text, name, f"refreshed {name}.csv") for name, text in self._files())

    def _files(self) -> Iterator[tuple[str, str]]:
        for name, path in self._paths().items():
            try:
                text = path.read_text("utf-8", "replace") if path.stat().st_size <= LARGEST_FILE else ""
            except FileNotFoundError:
                continue
            except OSError:
                text = ""  # told as a file that cannot be read
            yield name, text

    def _paths(self) -> Mapping[str, Path]:
        return {} if self._folder is None else {name: self._folder / f"{name}.csv" for name in PROVIDERS}

    def _stamps(self) -> tuple[tuple[str, int, int], ...]:
        found = []
        for name, path in self._paths().items():
            try:
                seen = path.stat()
            except OSError:
                continue
            found.append((name, seen.st_mtime_ns, seen.st_size))
        return tuple(found)


def stocked(base: Read, over: Read, day: date) -> Stock:
    """`over` in front of `base`, without what the audit refuses; what is refused of `over` hides nothing of `base`."""
    lost, fresh = judged(base.rows, over.rows, day)
    rows = (*fresh, *uncovered(base.rows, fresh))
    found = audit(rows, day)
    kept = sound(rows, found)
    return Stock(Catalog(kept), kept, (*base.findings, *over.findings, *lost, *found), day)


def uncovered(base: Iterable[Row], over: Iterable[Row]) -> Iterator[Row]:
    """What of `base` is not in `over`: other rows, and other prices of the same ones."""
    known: dict[object, set[str]] = {}
    for row in over:
        known.setdefault(row.key, set()).update(column for column, _ in row.prices())
    for row in base:
        hidden = known.get(row.key)
        if hidden is None:
            yield row
        elif any(column not in hidden for column, _ in row.prices()):
            yield row.without(hidden)


def judged(base: Sequence[Row], over: Sequence[Row], day: date) -> tuple[tuple[Finding, ...], tuple[Row, ...]]:
    """What is refused of `over`, seen beside `base`, and what is left of it."""
    if not over:
        return (), ()
    theirs = {(row.key, row.origin) for row in over}
    found = audit((*over, *uncovered(base, over)), day)
    lost = tuple(one for one in found if one.refused and (one.key, one.origin) in theirs)
    return lost, sound(over, lost)


def _joined(parts: Iterable[Read]) -> Read:
    found = list(parts)
    rows = tuple(row for part in found for row in part.rows)
    return Read(rows, tuple(finding for part in found for finding in part.findings))


def _replace(path: Path, text: str) -> None:
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
