"""The audit: refuses prices that cannot be right, each with the rule that it breaks and the fix.

Pure: ages are counted from the day that the caller passes. Old prices are offered with their age, refused ones not.
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
    """Limits in days: an older price gets a warning (`old`) or is refused (`stale`)."""

    old: int
    stale: int


AGES = {
    Market.ON_DEMAND: Age(old=180, stale=1095),
    Market.RESERVED: Age(old=180, stale=1095),
    Market.SPOT: Age(old=30, stale=730),
}
"""List prices rarely change; spot prices drift within weeks, and after two years even their level is wrong."""

SOONEST_STALE = min(age.stale for age in AGES.values())

MAX_GPUS = 64
MEMORY_PER_CPU = (256 * MiB, 64 * GiB)
MIN_SAMPLES = 3
"""A median of fewer prices than this shows no outlier."""
GPU_LOW, GPU_HIGH = 8.0, 4.0
"""The price of a GPU-hour may be this many times below or above the median of its GPU type."""
HOST_PER_CPU, HOST_PER_GIB = 50_000, 7_000
"""A large host may add this much an hour to the price of its GPUs, in micro-dollars."""
CPU_LOW, CPU_HIGH = 16.0, 5.0
"""The price per CPU of a machine without GPUs may be this many times below or above the median."""
REGION_LOW, REGION_HIGH = 0.5, 2.0
"""A price may be this multiple of the median of its instance type over all regions."""


def audit(rows: Sequence[Row], today: date) -> tuple[Finding, ...]:
    """Return everything that is wrong with the rows: each row alone, compared with the others, and its age."""
    findings = [finding for row in rows for finding in _check_row(row, today)]
    findings += _duplicates(rows)
    rest = drop_refused(rows, findings)
    return (*findings, *_outliers(rest), *_markets(rest), *_old(rest, today))


def drop_refused(rows: Iterable[Row], findings: Iterable[Finding]) -> tuple[Row, ...]:
    """Return the rows without their refused prices; a row without any price left is dropped."""
    refused: dict[tuple[object, str], set[str]] = defaultdict(set)
    for finding in findings:
        if finding.refused:
            refused[finding.key, finding.origin].add(finding.column)
    if not refused:
        return tuple(rows)
    return tuple(kept for row in rows if (kept := _without(row, refused.get((row.key, row.origin), set()))))


def _without(row: Row, columns: set[str]) -> Row | None:
    """Return the row without these prices, or None if none is left. An empty column name stands for the whole row."""
    if not columns:
        return row
    if "" in columns:
        return None
    kept = row.without(columns)
    return kept if kept.prices() else None


def _check_row(row: Row, today: date) -> Iterator[Finding]:
    """Yield what is wrong with a row on its own."""
    yield from _shape(row)
    page = price_lists().get(row.price_list)
    if page is None or page.provider != row.provider:
        names = ", ".join(name for name, page in price_lists().items() if page.provider == row.provider)
        what = f"{row.provider} has no price list {row.price_list!r}."
        yield _finding(row, Rule.UNKNOWN_LIST, what, f"Use one of {names}.")
    if not row.prices():
        yield _finding(row, Rule.MISSING, "The row has no price.", "Enter one, or remove the row.")
    for column, price in row.prices():
        if price <= 0:
            rule = Rule.ZERO if price == 0 else Rule.NEGATIVE
            what = f"The {_label(column)} price is {_dollars(price)}; a price must be above zero."
            yield _finding(row, rule, what, "Enter the provider's price, or leave the field empty.", column)
    yield from _age(row, today)


def _shape(row: Row) -> Iterator[Finding]:
    if row.gpu and not is_gpu(row.gpu):
        what = f"Unknown GPU type {row.gpu!r}."
        yield _finding(row, Rule.UNKNOWN_GPU, what, "`crucible catalog gpus` lists the names.")
    elif row.gpu and find_gpu(row.gpu).name != row.gpu:
        name = find_gpu(row.gpu).name
        what = f"The catalog's name for the GPU type {row.gpu!r} is {name!r}."
        yield _finding(row, Rule.UNKNOWN_GPU, what, f"Use {name!r}.")
    for what in _impossible(row):
        yield _finding(row, Rule.IMPOSSIBLE_SHAPE, what, "Enter what the provider's page says of the instance type.")


def _impossible(row: Row) -> Iterator[str]:
    if not row.region or not row.instance_type:
        yield "The row has no region or no instance type."
    if bool(row.gpu) != bool(row.gpus) or not 0 <= row.gpus <= MAX_GPUS:
        yield f"The row has {row.gpus} GPUs of type {row.gpu or 'none'}."
    if not 0 < row.vcpus <= MAX_CPUS:
        yield f"The row has {row.vcpus:g} CPUs."
    elif not MEMORY_PER_CPU[0] <= row.memory_bytes / row.vcpus <= MEMORY_PER_CPU[1]:
        yield f"The row has {row.memory_bytes / GiB:g} GiB of memory for {row.vcpus:g} CPUs."
    if row.interruption and row.interruption not in INTERRUPTION:
        yield f"The interruption class {row.interruption!r} is not one of {', '.join(INTERRUPTION)}."


def _age(row: Row, today: date) -> Iterator[Finding]:
    days = _days(row.dated, today)
    if days is None:
        yield _finding(row, Rule.BAD_DATE, f"The date {row.dated!r} is not valid.", "Write it like 2025-09-01.")
    elif days < 0:
        what = f"The date {row.dated} is in the future."
        yield _finding(row, Rule.BAD_DATE, what, "Enter the day on which the price was read.")
    elif days > SOONEST_STALE:
        for column, _ in row.prices():
            limit = AGES[PRICES[column][0]].stale
            if days > limit:
                what = f"The {_label(column)} price of {row.dated} is {days} days old; the limit is {limit}."
                yield _finding(row, Rule.STALE, what, refresh_advice(row.provider), column)


def _old(rows: Sequence[Row], today: date) -> Iterator[Finding]:
    """Yield one warning for all old prices of the same provider, market and day."""
    counts = Counter((row.provider, row.dated, column) for row in rows for column, _ in row.prices())
    for (provider, dated, column), count in counts.items():
        days, limit = _days(dated, today), AGES[PRICES[column][0]].old
        if days is not None and days > limit:
            what = f"They are {days} days old (read on {dated}), which is more than {limit}."
            prices = f"{count} {_label(column)} prices of {provider}"
            yield Finding(Rule.OLD, prices, what, refresh_advice(provider), column)


def refresh_advice(provider: str) -> str:
    """Return how to bring the prices of this provider up to date: a command, or the pages to compare with."""
    if provider not in WITHOUT_INTERFACE:
        return f"crucible catalog refresh {provider}"
    pages = ", ".join(page.source for page in price_lists().values() if page.provider == provider)
    return f"Compare with {pages}: {provider} has no interface to refresh prices from."


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
                what = f"The {_label(column)} price is listed already, at {first.origin or 'another row'}."
                yield _finding(row, Rule.DUPLICATE, what, "Remove one of the two.", column)


def _outliers(rows: Sequence[Row]) -> Iterator[Finding]:
    """Yield on-demand prices that are far from comparable ones. Such a finding refuses all prices of its row."""
    priced = [(row, row.on_demand) for row in rows if row.on_demand is not None]
    by_gpu: dict[str, list[float]] = defaultdict(list)
    by_type: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, price in priced:
        by_gpu[row.gpu].append(price / (row.gpus or row.vcpus))
        by_type[row.provider, row.instance_type].append(price)
    gpu_medians = {gpu: median(prices) for gpu, prices in by_gpu.items() if len(prices) >= MIN_SAMPLES}
    type_medians = {key: median(prices) for key, prices in by_type.items() if len(prices) >= MIN_SAMPLES}
    for row, price in priced:
        yield from _unit_outlier(row, price, gpu_medians.get(row.gpu))
        yield from _region_outlier(row, price, type_medians.get((row.provider, row.instance_type)))


def _unit_outlier(row: Row, price: int, usual: float | None) -> Iterator[Finding]:
    """Compare the price of one GPU, or of one CPU on a machine without GPUs, with the median `usual`."""
    if usual is None:
        return
    unit = price / (row.gpus or row.vcpus)
    host = (row.vcpus * HOST_PER_CPU + row.memory_bytes / GiB * HOST_PER_GIB) / row.gpus if row.gpu else 0.0
    low, high = (GPU_LOW, GPU_HIGH) if row.gpu else (CPU_LOW, CPU_HIGH)
    if not usual / low <= unit <= usual * high + host:
        what = f"One {row.gpu or 'CPU'} costs {_dollars(unit)} an hour here; the median is {_dollars(usual)}."
        rule = Rule.GPU_OUTLIER if row.gpu else Rule.CPU_OUTLIER
        yield _finding(row, rule, what, "Check the price, its unit and its currency on the provider's page.")


def _region_outlier(row: Row, price: int, usual: float | None) -> Iterator[Finding]:
    if usual is not None and not REGION_LOW <= price / usual <= REGION_HIGH:
        what = f"It costs {_dollars(price)} an hour here; the median over all regions is {_dollars(usual)}."
        fix = f"Check the price on the provider's page; regions differ by less than a factor of {REGION_HIGH:g}."
        yield _finding(row, Rule.REGION_OUTLIER, what, fix)


def _markets(rows: Sequence[Row]) -> Iterator[Finding]:
    """Compare the prices of one machine with each other, even if they are in different rows."""
    known: dict[tuple[object, str], int] = {(row.key, column): price for row in rows for column, price in row.prices()}
    for row in rows:
        on_demand = known.get((row.key, "on_demand"))
        for column, price in row.prices():
            if on_demand is None:
                what = f"There is no on-demand price to check the {_label(column)} price against."
                yield _finding(row, Rule.MISSING, what, f"Enter one. {refresh_advice(row.provider)}", column)
            elif column != "on_demand" and price > on_demand:
                spot = PRICES[column][0] is Market.SPOT
                rule = Rule.SPOT_ABOVE_ON_DEMAND if spot else Rule.RESERVED_ABOVE_ON_DEMAND
                what = f"The {_label(column)} price is {_dollars(price)}, above {_dollars(on_demand)} on demand."
                yield _finding(row, rule, what, "Check both on the provider's page.", column)
        one_year = known.get((row.key, "reserved_1y"))
        if row.reserved_3y is not None and one_year is not None and row.reserved_3y > one_year:
            what = f"The 3-year price is {_dollars(row.reserved_3y)}, above {_dollars(one_year)} for one year."
            yield _finding(row, Rule.LONGER_COSTS_MORE, what, "Check both on the provider's page.", "reserved_3y")


def _finding(row: Row, rule: Rule, what: str, fix: str, column: str = "") -> Finding:
    return Finding(rule, row.label, what, fix, column, row.origin, row.key)


def _label(column: str) -> str:
    market, years = PRICES[column]
    return f"{years}-year reserved" if years else market.value.replace("_", "-")


def _dollars(micros: float) -> str:
    return f"${micros / MICROS:.4f}"
