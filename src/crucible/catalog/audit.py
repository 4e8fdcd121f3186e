"""The audit: refuses prices that cannot be right, and says of each by which rule and what mends it.

Pure: the day from which ages are counted is given. What is refused is not offered; what is merely old is, with its age.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from statistics import median

from crucible.catalog.findings import Finding, Rule
from crucible.catalog.lists import WITHOUT_INTERFACE, price_lists
from crucible.catalog.rows import INTERRUPTION, PRICES, Row
from crucible.core.compute.gpus import find_gpu, is_gpu
from crucible.core.compute.offers import Market
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import MAX_CPUS, GiB, MiB


@dataclass(frozen=True)
class Age:
    """In days: after which a price is told as old, and after which it is refused."""

    old: int
    stale: int


AGES = {
    Market.ON_DEMAND: Age(old=180, stale=1095),
    Market.RESERVED: Age(old=180, stale=1095),
    Market.SPOT: Age(old=30, stale=730),
}
"""List prices change seldom; a spot price wanders within weeks, and after two years not even its level is right."""

SOONEST_STALE = min(age.stale for age in AGES.values())

MOST_GPUS = 64
MEMORY_PER_CPU = (256 * MiB, 64 * GiB)
ENOUGH = 3
"""Prices of a kind below which there is no telling which of them is odd."""
GPU_LOW, GPU_HIGH = 8.0, 4.0
"""A GPU-hour may cost so many times less, or more, than the median of its type. More also for a large host:"""
HOST_PER_CPU, HOST_PER_GIB = 50_000, 7_000
CPU_LOW, CPU_HIGH = 16.0, 5.0
REGION_LOW, REGION_HIGH = 0.5, 2.0


def audit(rows: Sequence[Row], today: date) -> tuple[Finding, ...]:
    """Everything that is wrong with these rows: each by itself, then beside the others, then their age."""
    alone = [finding for row in rows for finding in _alone(row, today)]
    alone += _duplicates(rows)
    rest = sound(rows, alone)
    return (*alone, *_outliers(rest), *_markets(rest), *_old(rest, today))


def sound(rows: Iterable[Row], findings: Iterable[Finding]) -> tuple[Row, ...]:
    """The rows without the prices that were refused; a row that has none left is left out."""
    refused: dict[tuple[object, str], set[str]] = defaultdict(set)
    for finding in findings:
        if finding.refused:
            refused[finding.key, finding.origin].add(finding.column)
    if not refused:
        return tuple(rows)
    return tuple(kept for row in rows if (kept := _without(row, refused.get((row.key, row.origin), set()))))


def _without(row: Row, columns: set[str]) -> Row | None:
    if not columns:
        return row
    if "" in columns:
        return None
    kept = row.without(columns)
    return kept if kept.prices() else None


def _alone(row: Row, today: date) -> Iterator[Finding]:
    """What can be said of a row by itself."""
    yield from _shape(row)
    page = price_lists().get(row.price_list)
    if page is None or page.provider != row.provider:
        fix = f"Name one of {', '.join(name for name, page in price_lists().items() if page.provider == row.provider)}."
        yield _finding(row, Rule.UNKNOWN_LIST, f"There is no price list {row.price_list!r} of {row.provider}.", fix)
    if not row.prices():
        yield _finding(row, Rule.MISSING, "It has no price at all.", "Enter one, or remove the row.")
    for column, price in row.prices():
        if price <= 0:
            rule = Rule.ZERO if price == 0 else Rule.NEGATIVE
            what = f"Its {_called(column)} price is {_dollars(price)}, which nobody charges."
            yield _finding(row, rule, what, "Enter the provider's price, or leave it empty.", column)
    yield from _age(row, today)


def _shape(row: Row) -> Iterator[Finding]:
    if row.gpu and not is_gpu(row.gpu):
        what = f"There is no GPU type {row.gpu!r}."
        yield _finding(row, Rule.UNKNOWN_GPU, what, "`crucible catalog gpus` lists the names.")
    elif row.gpu and find_gpu(row.gpu).name != row.gpu:
        what = f"The GPU type {row.gpu!r} is called {find_gpu(row.gpu).name!r} here."
        yield _finding(row, Rule.UNKNOWN_GPU, what, "Use that name.")
    for wrong in _impossible(row):
        yield _finding(row, Rule.IMPOSSIBLE_SHAPE, wrong, "Enter it as the provider describes the instance type.")


def _impossible(row: Row) -> Iterator[str]:
    if not row.region or not row.instance_type:
        yield "It has no region or no instance type."
    if bool(row.gpu) != bool(row.gpus) or not 0 <= row.gpus <= MOST_GPUS:
        yield f"It has {row.gpus} GPUs of type {row.gpu or 'none'}."
    if not 0 < row.vcpus <= MAX_CPUS:
        yield f"It has {row.vcpus:g} CPUs."
    elif not MEMORY_PER_CPU[0] <= row.memory_bytes / row.vcpus <= MEMORY_PER_CPU[1]:
        yield f"It has {row.memory_bytes / GiB:g} GiB of memory for {row.vcpus:g} CPUs."
    if row.interruption and row.interruption not in INTERRUPTION:
        yield f"Its interruption class is {row.interruption!r}, not one of {', '.join(INTERRUPTION)}."


def _age(row: Row, today: date) -> Iterator[Finding]:
    days = _days(row.dated, today)
    if days is None:
        yield _finding(row, Rule.BAD_DATE, f"Its date {row.dated!r} is none.", "Write it like 2025-09-01.")
    elif days < 0:
        yield _finding(row, Rule.BAD_DATE, f"Its date {row.dated} is yet to come.", "Enter the day it was read.")
    elif days > SOONEST_STALE:
        for column, _ in row.prices():
            limit = AGES[PRICES[column][0]].stale
            if days > limit:
                what = f"Its {_called(column)} price is of {row.dated}, {days} days old; after {limit} it is stale."
                yield _finding(row, Rule.STALE, what, renewal(row.provider), column)


def _old(rows: Sequence[Row], today: date) -> Iterator[Finding]:
    """One for all prices of a provider, market and day."""
    counted = Counter((row.provider, row.dated, column) for row in rows for column, _ in row.prices())
    for (provider, dated, column), count in counted.items():
        days, limit = _days(dated, today), AGES[PRICES[column][0]].old
        if days is not None and days > limit:
            what = f"They are of {dated}, {days} days old; after {limit} they are told as old."
            prices = f"{count} {_called(column)} prices of {provider}"
            yield Finding(Rule.OLD, prices, what, renewal(provider), column)


def renewal(provider: str) -> str:
    """How prices of this provider are brought up to date."""
    if provider not in WITHOUT_INTERFACE:
        return f"crucible catalog refresh {provider}"
    pages = ", ".join(page.source for page in price_lists().values() if page.provider == provider)
    return f"Compare with {pages}: there is no interface to refresh them from."


@lru_cache(maxsize=4096)
def _days(dated: str, today: date) -> int | None:
    try:
        return (today - date.fromisoformat(dated)).days
    except ValueError:
        return None


def _duplicates(rows: Sequence[Row]) -> Iterator[Finding]:
    seen: dict[tuple[object, str], Row] = {}
    for row in rows:
        for column, _ in row.prices():
            first = seen.setdefault((row.key, column), row)
            if first is not row:
                what = f"Its {_called(column)} price stands here again; first at {first.origin or 'another row'}."
                yield _finding(row, Rule.DUPLICATE, what, "Remove one of the two.", column)


def _outliers(rows: Sequence[Row]) -> Iterator[Finding]:
    """On-demand prices that are far from those of their kind; all prices of such a row are in doubt."""
    priced = [(row, row.on_demand) for row in rows if row.on_demand is not None]
    by_gpu: dict[str, list[float]] = defaultdict(list)
    by_type: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, price in priced:
        by_gpu[row.gpu].append(price / (row.gpus or row.vcpus))
        by_type[row.provider, row.instance_type].append(price)
    usual = {name: median(found) for name, found in by_gpu.items() if len(found) >= ENOUGH}
    around = {key: median(found) for key, found in by_type.items() if len(found) >= ENOUGH}
    for row, price in priced:
        yield from _odd_unit(row, price, usual.get(row.gpu))
        yield from _odd_region(row, price, around.get((row.provider, row.instance_type)))


def _odd_unit(row: Row, price: int, usual: float | None) -> Iterator[Finding]:
    if usual is None:
        return
    unit = price / (row.gpus or row.vcpus)
    host = (row.vcpus * HOST_PER_CPU + row.memory_bytes / GiB * HOST_PER_GIB) / row.gpus if row.gpu else 0.0
    low, high = (GPU_LOW, GPU_HIGH) if row.gpu else (CPU_LOW, CPU_HIGH)
    if not usual / low <= unit <= usual * high + host:
        thing = f"An hour of one {row.gpu}" if row.gpu else "An hour of one CPU"
        what = f"{thing} costs {_dollars(unit)} there; the median is {_dollars(usual)}."
        rule = Rule.GPU_OUTLIER if row.gpu else Rule.CPU_OUTLIER
        yield _finding(row, rule, what, "Check it on the provider's page; mind the unit and the currency.")


def _odd_region(row: Row, price: int, around: float | None) -> Iterator[Finding]:
    if around is not None and not REGION_LOW <= price / around <= REGION_HIGH:
        what = f"It costs {_dollars(price)} an hour; over all regions the median is {_dollars(around)}."
        fix = f"Check it on the provider's page; regions differ by less than {REGION_HIGH:g} times."
        yield _finding(row, Rule.REGION_OUTLIER, what, fix)


def _markets(rows: Sequence[Row]) -> Iterator[Finding]:
    """Prices of one machine against each other, though they may stand in two rows."""
    known: dict[tuple[object, str], int] = {(row.key, column): price for row in rows for column, price in row.prices()}
    for row in rows:
        full = known.get((row.key, "on_demand"))
        for column, price in row.prices():
            if full is None:
                what = f"There is no on-demand price that its {_called(column)} price could be checked against."
                yield _finding(row, Rule.MISSING, what, f"Enter one. {renewal(row.provider)}", column)
            elif column != "on_demand" and price > full:
                spot = PRICES[column][0] is Market.SPOT
                rule = Rule.SPOT_ABOVE_ON_DEMAND if spot else Rule.RESERVED_ABOVE_ON_DEMAND
                what = f"Its {_called(column)} price is {_dollars(price)}, on demand it is {_dollars(full)}."
                yield _finding(row, rule, what, "Check both on the provider's page.", column)
        one = known.get((row.key, "reserved_1y"))
        if row.reserved_3y is not None and one is not None and row.reserved_3y > one:
            what = f"Bound for three years it is {_dollars(row.reserved_3y)}, for one year {_dollars(one)}."
            yield _finding(row, Rule.LONGER_COSTS_MORE, what, "Check both on the provider's page.", "reserved_3y")


def _finding(row: Row, rule: Rule, what: str, fix: str, column: str = "") -> Finding:
    return Finding(rule, row.called, what, fix, column, row.origin, row.key)


def _called(column: str) -> str:
    market, years = PRICES[column]
    return f"{years}-year reserved" if years else market.value.replace("_", "-")


def _dollars(micros: float) -> str:
    return f"${micros / MICROS:.4f}"
