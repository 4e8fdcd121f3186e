"""Compare the catalog with another price table: how many prices agree, which differ, what either table lacks.

The other table is CSV with at least InstanceType, Region and Price, and optionally SpotPrice, AcceleratorName and
AcceleratorCount. The price of a region is the median of its zones. A row without InstanceType is the price of GPUs
alone, to be added to the price of their host.
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
"""Relative differences for which a comparison counts the prices within them."""
MAX_LISTED = 50

RegionType = tuple[str, str]
"""A region and an instance type."""


@dataclass(frozen=True)
class Difference:
    """One price in both tables, in micro-dollars."""

    row: str
    market: str
    ours: int
    theirs: int

    @property
    def relative(self) -> float:
        """How far our price is above theirs, as a fraction of theirs."""
        return self.ours / self.theirs - 1

    @property
    def view(self) -> DifferenceView:
        return DifferenceView(
            row=self.row,
            market=self.market,
            ours_micros=self.ours,
            theirs_micros=self.theirs,
            percent=round(100 * self.relative, 2),
        )


@dataclass(frozen=True)
class Comparison:
    """The catalog's prices of one provider (`ours`) beside another table (`theirs`).

    `pairs`: prices that both have. `missing_here`: regions that lack an instance type which the catalog has elsewhere.
    `unknown_types`: instance types that the catalog does not have at all.
    """

    provider: str
    ours: int
    theirs: int
    pairs: tuple[Difference, ...]
    missing_here: tuple[str, ...]
    missing_there: tuple[str, ...]
    unknown_types: int
    unreadable: int

    def matched(self, market: str = "on_demand") -> int:
        """Return how many prices of a market both tables have."""
        return sum(pair.market == market for pair in self.pairs)

    def within(self, share: float, market: str = "on_demand") -> int:
        """Return how many of these prices differ by at most `share`."""
        return sum(pair.market == market and abs(pair.relative) <= share for pair in self.pairs)

    def over(self, share: float) -> list[Difference]:
        """Return the prices that differ by more than `share`, largest difference first."""
        return sorted((pair for pair in self.pairs if abs(pair.relative) > share), key=lambda pair: -abs(pair.relative))

    def view(self, share: float) -> PriceComparisonView:
        """Return the comparison for the API, with the prices that differ by more than `share`."""
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
            differences=tuple(pair.view for pair in over[:MAX_LISTED]),
            differences_count=len(over),
            missing_here=self.missing_here[:MAX_LISTED],
            missing_here_count=len(self.missing_here),
            missing_there=self.missing_there[:MAX_LISTED],
            missing_there_count=len(self.missing_there),
            unknown_types=self.unknown_types,
            unreadable=self.unreadable,
        )


@dataclass
class _Table:
    """The other table, in dollars an hour.

    `prices`: by region, instance type and market. `gpu_prices`: of GPUs alone, by region, name, count and market.
    `hosts`: instance types whose row names no GPU. `gpu_types`: the GPU types that each name may mean.
    """

    prices: dict[tuple[RegionType, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    gpu_prices: dict[tuple[str, str, int, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    hosts: set[RegionType] = field(default_factory=set)
    gpu_types: dict[str, frozenset[str]] = field(default_factory=dict)
    unreadable: int = 0

    def price(self, row: Row, market: str) -> float | None:
        """Return the table's price for a row of the catalog, or None: of the machine, or of its host and GPUs added."""
        key = (row.region, row.instance_type)
        # A machine with GPUs whose row in the table names none: that price is of the host alone.
        if key not in self.hosts or not row.gpu:
            zones = self.prices.get((key, market))
            if zones is not None:
                return median(zones)
        host = self.prices.get(((row.region, row.instance_type.partition("+")[0]), market))
        gpus = next(self._prices_of_gpus(row, market), None) if row.gpu else None
        return None if host is None or gpus is None else median(host) + median(gpus)

    def _prices_of_gpus(self, row: Row, market: str) -> Iterator[list[float]]:
        """Yield prices of the row's GPUs, by the most specific name first (`A100-80GB` before `A100`)."""
        names = [name for name, types in self.gpu_types.items() if row.gpu in types]
        for name in sorted(names, key=lambda name: len(self.gpu_types[name])):
            if prices := self.gpu_prices.get((row.region, name, row.gpus, market)):
                yield prices


def compare(rows: Sequence[Row], text: str, provider: str | None = None) -> Comparison:
    """Compare the rows of a provider (default: the one whose instance types the table has) with a table in CSV.

    Raises BadInput for an invalid table, and UnknownName for a provider without prices.
    """
    table = _read(text)
    provider = provider or _likely_provider(rows, {instance_type for (_, instance_type), _ in table.prices})
    mine = [row for row in rows if row.provider == provider]
    if not mine:
        raise UnknownName("provider", provider, {row.provider for row in rows})
    ours = {(row.region, name) for row in mine for name in (row.instance_type, row.instance_type.partition("+")[0])}
    known_types = {instance_type for _, instance_type in ours}
    theirs = {key for key, market in table.prices if market == "on_demand"}
    missing = sorted(f"{name} {region}" for region, name in theirs - ours if name in known_types)
    priced = [row for row in mine if row.on_demand is not None]
    return Comparison(
        provider=provider,
        ours=len(priced),
        theirs=len(theirs),
        pairs=tuple(_pairs(mine, table)),
        missing_here=tuple(missing),
        missing_there=tuple(sorted(_label(row) for row in priced if table.price(row, "on_demand") is None)),
        unknown_types=len({instance_type for _, instance_type in theirs} - known_types),
        unreadable=table.unreadable,
    )


def _pairs(rows: Iterable[Row], table: _Table) -> Iterator[Difference]:
    for row in rows:
        for market, ours in (("on_demand", row.on_demand), ("spot", row.spot)):
            theirs = table.price(row, market)
            if ours is not None and theirs is not None:
                yield Difference(_label(row), market, ours, round(theirs * MICROS))


def _label(row: Row) -> str:
    return f"{row.instance_type} {row.region}"


def _likely_provider(rows: Iterable[Row], types: set[str]) -> str:
    """Return the provider that has the most of these instance types. Raises BadInput if none has any."""
    common: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.instance_type.partition("+")[0] in types:
            common[row.provider].add(row.instance_type)
    if not common:
        raise BadInput(
            "The table has no instance type of the catalog.",
            fix="Use a table of a provider in `crucible catalog list`, or name the provider with --provider.",
        )
    return max(sorted(common), key=lambda name: len(common[name]))


def _read(text: str) -> _Table:
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    table = _Table()
    try:
        missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
        if missing:
            fix = f"Use CSV with a header line and at least the columns {', '.join(REQUIRED)}."
            raise BadInput(f"The table has no column {missing[0]}.", fix=fix, field="against")
        for line in reader:
            _add(table, line)
    except csv.Error as error:
        raise BadInput("The table cannot be read as CSV.", why=f"{error}.", fix="Export it again.") from error
    return table


def _add(table: _Table, line: Mapping[str, str | None]) -> None:
    region, instance_type = line["Region"] or "", line["InstanceType"] or ""
    try:
        prices = {"on_demand": _amount(line["Price"]), "spot": _amount(line.get("SpotPrice"))}
        count = int(_amount(line.get("AcceleratorCount")) or 0)
    except ValueError:
        table.unreadable += 1
        return
    name = line.get("AcceleratorName") or ""
    if instance_type and line.get("AcceleratorName") == "":
        table.hosts.add((region, instance_type))
    for market, price in prices.items():
        if price is None:
            continue
        if instance_type:
            table.prices[(region, instance_type), market].append(price)
        elif is_gpu(name):
            table.gpu_types[name] = frozenset(gpu.name for gpu in find_gpus(name))
            table.gpu_prices[region, name, count, market].append(price)


def _amount(text: str | None) -> float | None:
    """Return the price, or None for an empty field or zero. Raises ValueError."""
    if not text or not text.strip():
        return None
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise ValueError(text)
    return number or None
