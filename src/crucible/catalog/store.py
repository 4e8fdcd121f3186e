"""The price library: the shipped prices, overridden by refreshed ones. Files are read on first use."""

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

from crucible.catalog.audit import audit, drop_refused
from crucible.catalog.findings import Finding
from crucible.catalog.index import Catalog
from crucible.catalog.lists import PROVIDERS
from crucible.catalog.rows import ParsedRows, Row, read_rows, write_rows
from crucible.core.errors import DiskFull, Trouble

MAX_FILE_BYTES = 32 * 1024**2


@dataclass(frozen=True)
class Stock:
    """The offers of a day, and the findings of the audit. `oldest` and `newest` are dates of the offered prices."""

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
def shipped() -> ParsedRows:
    """Return the rows that this version ships."""
    data = files("crucible.catalog") / "data"
    return _concat(
        read_rows((data / f"{name}.csv").read_text(encoding="utf-8"), name, f"{name}.csv") for name in PROVIDERS
    )


@cache
def shipped_on() -> date:
    """Return the day of the newest price that this version ships."""
    return date.fromisoformat(max(row.dated for row in shipped().rows))


class Library:
    """`folder`: holds the refreshed rows, a file for each provider. Without one, nothing can be refreshed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._stock: tuple[object, Stock] | None = None
        self._renewing = threading.Lock()

    def stock(self, day: date) -> Stock:
        """Return the offers of a day: the same object until a file or the day changes."""
        # With a clock that is behind, the shipped prices would be dated in the future and refused.
        today = max(day, shipped_on())
        stamp = (today, self._stamps())
        if self._stock is None or self._stock[0] != stamp:
            self._stock = (stamp, make_stock(shipped(), self._refreshed(), today))
        return self._stock[1]

    def keep(self, provider: str, rows: Sequence[Row]) -> None:
        """Replace the refreshed rows of a provider, all or none. Raises Trouble without a folder, and DiskFull."""
        if self._folder is None:
            raise Trouble("There is no folder for refreshed prices.", fix="Start the server with a state folder.")
        text = write_rows(sorted(rows, key=lambda row: row.key))
        try:
            self._folder.mkdir(exist_ok=True)
            _replace(self._folder / f"{provider}.csv", text)
        except OSError as error:
            what = f"The refreshed prices of {provider} cannot be written."
            fix = f"Free disk space, or let the server write to {self._folder}. The old prices stay in use."
            raise DiskFull(what, why=f"{error}.", fix=fix) from error

    def renew(self, provider: str, rows: Sequence[Row], day: date) -> tuple[Finding, ...]:
        """Keep the rows that pass the audit, on top of those kept before. Return the findings on the refused ones."""
        refused, good = split_refused(shipped().rows, rows, day)
        if good:
            with self._renewing:
                self.keep(provider, [*good, *without_overridden(self.refreshed(provider), good)])
        return refused

    def refreshed(self, provider: str) -> tuple[Row, ...]:
        """Return the refreshed rows of this provider, without auditing them."""
        return tuple(row for row in self._refreshed().rows if row.provider == provider)

    def _refreshed(self) -> ParsedRows:
        return _concat(read_rows(text, name, f"refreshed {name}.csv") for name, text in self._files())

    def _files(self) -> Iterator[tuple[str, str]]:
        for name, path in self._paths().items():
            try:
                text = path.read_text("utf-8", "replace") if path.stat().st_size <= MAX_FILE_BYTES else ""
            except FileNotFoundError:
                continue
            except OSError:
                text = ""  # read_rows then reports an unreadable file
            yield name, text

    def _paths(self) -> Mapping[str, Path]:
        return {} if self._folder is None else {name: self._folder / f"{name}.csv" for name in PROVIDERS}

    def _stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Return the time and size of each file, which show whether one was replaced."""
        stamps = []
        for name, path in self._paths().items():
            try:
                stat = path.stat()
            except OSError:
                continue
            stamps.append((name, stat.st_mtime_ns, stat.st_size))
        return tuple(stamps)


def make_stock(base: ParsedRows, over: ParsedRows, day: date) -> Stock:
    """Return the prices of `base`, overridden by those of `over` that pass the audit."""
    refused, fresh = split_refused(base.rows, over.rows, day)
    rows = (*fresh, *without_overridden(base.rows, fresh))
    findings = audit(rows, day)
    kept = drop_refused(rows, findings)
    return Stock(Catalog(kept), kept, (*base.findings, *over.findings, *refused, *findings), day)


def without_overridden(base: Iterable[Row], over: Iterable[Row]) -> Iterator[Row]:
    """Yield the prices of `base` that `over` does not have: other rows, and other columns of the same rows."""
    overridden: dict[object, set[str]] = {}
    for row in over:
        overridden.setdefault(row.key, set()).update(column for column, _ in row.prices())
    for row in base:
        hidden = overridden.get(row.key)
        if hidden is None:
            yield row
        elif any(column not in hidden for column, _ in row.prices()):
            yield row.without(hidden)


def split_refused(base: Sequence[Row], over: Sequence[Row], day: date) -> tuple[tuple[Finding, ...], tuple[Row, ...]]:
    """Audit `over` together with `base`. Return the refusals of `over`, and its rows without the refused prices."""
    if not over:
        return (), ()
    audited = {(row.key, row.origin) for row in over}
    findings = audit((*over, *without_overridden(base, over)), day)
    refused = tuple(each for each in findings if each.refused and (each.key, each.origin) in audited)
    return refused, drop_refused(over, refused)


def _concat(parts: Iterable[ParsedRows]) -> ParsedRows:
    parts = list(parts)
    rows = tuple(row for part in parts for row in part.rows)
    return ParsedRows(rows, tuple(finding for part in parts for finding in part.findings))


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically: through a temporary file in its folder, which is synced before the rename."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
