"""Our prices against another table of them: how many agree, which differ, what one has and the other has not.

The other table is CSV with at least InstanceType, Region and Price, and where it has them SpotPrice, AcceleratorName
and AcceleratorCount. Rows of several zones are taken together by their median. A row without InstanceType prices
GPUs apart from their host; such a price is added to the host's.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from crucible.catalog.rows import Row
from crucible.core.compute.gpus import find_gpus, is_gpu
from crucible.core.compute.pricing import MICROS
from crucible.core.errors import BadInput, UnknownName
from crucible.core.views.catalog import DifferenceView, PriceComparisonView

REQUIRED = ("InstanceType", "Region", "Price")
CLOSE = (0.02, 0.10)
"""Two prices that are nearer than this are counted as agreeing."""
MOST_SHOWN = 50

Place = tuple[str, str]
"""Region and instance type."""


@dataclass(frozen=True)
class Difference:
    """`by`: how much more ours is, as a part of theirs. Prices in micro-dollars."""

    row: str
    market: str
    ours: int
    theirs: int

    @property
    def by(self) -> float:
        return self.ours / self.theirs - 1

    @property
    def view(self) -> DifferenceView:
        return DifferenceView(
            row=self.row,
            market=self.market,
            ours_micros=self.ours,
            theirs_micros=self.theirs,
            percent=round(100 * self.by, 2),
        )


@dataclass(frozen=True)
class Comparison:
    """`pairs`: prices that both have. `missing_here`: places of types that we know; `unknown_types` we have nowhere."""

    provider: str
    ours: int
    theirs: int
    pairs: tuple[Difference, ...]
    missing_here: tuple[str, ...]
    missing_there: tuple[str, ...]
    unknown_types: int
    unreadable: int

    def matched(self, market: str = "on_demand") -> int:
        return sum(pair.market == market for pair in self.pairs)

    def within(self, share: float, market: str = "on_demand") -> int:
        return sum(pair.market == market and abs(pair.by) <= share for pair in self.pairs)

    def over(self, share: float) -> list[Difference]:
        return sorted((pair for pair in self.pairs if abs(pair.by) > share), key=lambda pair: -abs(pair.by))

    def view(self, share: float) -> PriceComparisonView:
        """Show it; prices that differ by more than `share` of theirs are listed."""
        over = self.over(share)
        return PriceComparisonView(
            provider=self.provider,
            ours=self.ours,
            theirs=self.theirs,
            matched=self.matched(),
            matched_share=round(self.matched() / self.ours, 4) if self.ours else 0.0,
            within={f"{100 * close:g}%": self.within(close) for close in CLOSE},
            spot_matched=self.matched("spot"),
            spot_within={f"{100 * close:g}%": self.within(close, "spot") for close in CLOSE},
            over_percent=round(100 * share, 4),
            differences=tuple(pair.view for pair in over[:MOST_SHOWN]),
            differences_count=len(over),
            missing_here=self.missing_here[:MOST_SHOWN],
            missing_here_count=len(self.missing_here),
            missing_there=self.missing_there[:MOST_SHOWN],
            missing_there_count=len(self.missing_there),
            unknown_types=self.unknown_types,
            unreadable=self.unreadable,
        )


@dataclass
class _Table:
    """The other table. `hosts`: places whose row names no GPU. `apart`: prices of GPUs alone, by their `names`."""

    prices: dict[tuple[Place, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    apart: dict[tuple[str, str, int, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    hosts: set[Place] = field(default_factory=set)
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    unreadable: int = 0

    def price(self, row: Row, market: str) -> float | None:
        """What it says for this row of ours; for one with GPUs on a bare host, both together."""
        place = (row.region, row.instance_type)
        if place not in self.hosts or not row.gpu:
            found = self.prices.get((place, market))
            if found is not None:
                return median(found)
        host = self.prices.get(((row.region, row.instance_type.partition("+")[0]), market))
        gpus = next(self._gpus(row, market), None) if row.gpu else None
        return None if host is None or gpus is None else median(host) + median(gpus)

    def _gpus(self, row: Row, market: str) -> Iterator[list[float]]:
        """Prices of its GPUs; where several names may mean them (`A100`, `A100-80GB`), of the narrowest first."""
        names = [name for name, meant in self.names.items() if row.gpu in meant]
        for name in sorted(names, key=lambda name: len(self.names[name])):
            if found := self.apart.get((row.region, name, row.gpus, market)):
                yield found


def compare(rows: Sequence[Row], text: str, provider: str | None = None) -> Comparison:
    """Raises BadInput for what is no such table, UnknownName for a provider without prices."""
    table = _read(text)
    types = {kind for (_, kind), _ in table.prices}
    chosen = provider or _likeliest(rows, types)
    mine = [row for row in rows if row.provider == chosen]
    if not mine:
        raise UnknownName("provider", chosen, {row.provider for row in rows})
    places = {(row.region, name) for row in mine for name in (row.instance_type, row.instance_type.partition("+")[0])}
    known = {name for _, name in places}
    theirs = {place for place, market in table.prices if market == "on_demand"}
    missing = sorted(f"{kind} {region}" for region, kind in theirs - places if kind in known)
    priced = [row for row in mine if row.on_demand is not None]
    return Comparison(
        provider=chosen,
        ours=len(priced),
        theirs=len(theirs),
        pairs=tuple(_pairs(mine, table)),
        missing_here=tuple(missing),
        missing_there=tuple(sorted(_named(row) for row in priced if table.price(row, "on_demand") is None)),
        unknown_types=len({kind for _, kind in theirs} - known),
        unreadable=table.unreadable,
    )


def _pairs(rows: Iterable[Row], table: _Table) -> Iterator[Difference]:
    for row in rows:
        for market, ours in (("on_demand", row.on_demand), ("spot", row.spot)):
            theirs = table.price(row, market)
            if ours is not None and theirs is not None:
                yield Difference(_named(row), market, ours, round(theirs * MICROS))


def _named(row: Row) -> str:
    return f"{row.instance_type} {row.region}"


def _likeliest(rows: Iterable[Row], types: set[str]) -> str:
    """The provider most of whose instance types the table has."""
    common: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.instance_type.partition("+")[0] in types:
            common[row.provider].add(row.instance_type)
    if not common:
        raise BadInput(
            "The table has no instance type that the catalog knows.",
            fix="Give a table of a provider that `crucible catalog list` shows, or name it with --provider.",
        )
    return max(sorted(common), key=lambda name: len(common[name]))


def _read(text: str) -> _Table:
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    table = _Table()
    try:
        lacking = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
        if lacking:
            fix = f"It has to be CSV with a head line and at least {', '.join(REQUIRED)}."
            raise BadInput(f"The table has no column {lacking[0]}.", fix=fix, field="against")
        for line in reader:
            _add(table, line)
    except csv.Error as error:
        raise BadInput("The table cannot be read as CSV.", why=f"{error}.", fix="Export it again.") from error
    return table


def _add(table: _Table, line: Mapping[str, str | None]) -> None:
    region, kind = line["Region"] or "", line["InstanceType"] or ""
    try:
        prices = {"on_demand": _amount(line["Price"]), "spot": _amount(line.get("SpotPrice"))}
        count = int(_amount(line.get("AcceleratorCount")) or 0)
    except ValueError:
        table.unreadable += 1
        return
    name = line.get("AcceleratorName") or ""
    if kind and line.get("AcceleratorName") == "":
        table.hosts.add((region, kind))
    for market, price in prices.items():
        if price is None:
            continue
        if kind:
            table.prices[(region, kind), market].append(price)
        elif is_gpu(name):
            table.names[name] = frozenset(one.name for one in find_gpus(name))
            table.apart[region, name, count, market].append(price)


def _amount(text: str | None) -> float | None:
    """None for an empty field, and for zero, which is no price."""
    if not text or not text.strip():
        return None
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise ValueError(text)
    return number or None
