"""Quotes: prices as they are found in an answer, put onto the sizes that are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from crucible.catalog.findings import Finding, Rule
from crucible.catalog.refresh.fetcher import bad_answer
from crucible.catalog.rows import Row
from crucible.core.compute.pricing import MICROS

ENOUGH = 0.5
"""The part of what is known of a region that an answer has to have; with less it was cut off, or is another thing."""
MOST_PROBLEMS = 100


@dataclass
class Quotes:
    """What was read of one provider's answer so far. `shapes` are rows by instance type: sizes, to be priced anew."""

    provider: str
    shapes: Mapping[str, Row]
    day: date
    prices: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    interruption: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)

    def add(self, region: str, kind: str, column: str, price: object, currency: object = "USD") -> None:
        """Dollars an hour. What is no price is noted and left out; of two for the same the lower one counts."""
        called = f"{self.provider} {region} {kind}"
        amount = amount_of(price)
        if currency != "USD":
            self._refuse(Rule.UNREADABLE, called, f"Its {column} price is in {currency!s:.20}, not in dollars.", column)
        elif amount is None:
            self._refuse(Rule.UNREADABLE, called, f"Its {column} price is {price!r:.60}.", column)
        elif amount <= 0:
            rule = Rule.ZERO if amount == 0 else Rule.NEGATIVE
            self._refuse(rule, called, f"Its {column} price is {amount:g}.", column)
        else:
            found = self.prices.setdefault((region, kind), {})
            found[column] = min(found.get(column, 10**15), round(amount * MICROS))

    def _refuse(self, rule: Rule, called: str, what: str, column: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            fix = "Nothing is to be done: the price in use stays."
            self.problems.append(Finding(rule, called, what, fix, column, "the answer"))

    def rows(self) -> Iterator[Row]:
        """A row for each place and type with a price; today's."""
        for (region, kind), prices in sorted(self.prices.items()):
            shape = self.shapes[kind]
            yield replace(
                shape,
                region=region,
                on_demand=prices.get("on_demand"),
                spot=prices.get("spot"),
                reserved_1y=prices.get("reserved_1y"),
                reserved_3y=prices.get("reserved_3y"),
                interruption=self.interruption.get((region, kind), ""),
                dated=self.day.isoformat(),
                origin=f"the answer ({kind} {region})",
            )

    def check_whole(self, known: Iterable[Row], regions: Iterable[str]) -> None:
        """Raises BadAnswer when too little of what is known of these regions was in the answer."""
        expected = {(row.region, row.instance_type) for row in known if row.region in set(regions)}
        found = expected & {place for place, prices in self.prices.items() if "on_demand" in prices}
        if not self.prices or len(found) < ENOUGH * len(expected):
            why = f"Its answer has prices for {len(found)} of {len(expected)} instance types that are known there."
            raise bad_answer(self.provider, why)


@dataclass(frozen=True)
class Refreshed:
    """`refused`: what of the answer cannot be used. `notes`: what a person should know."""

    rows: tuple[Row, ...]
    refused: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def amount_of(value: object) -> float | None:
    """A number, also as text; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e9 else None
