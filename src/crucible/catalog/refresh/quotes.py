"""Quotes: the prices in a provider's response, matched with the instance types that the catalog knows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from crucible.catalog.findings import Finding, Rule
from crucible.catalog.refresh.fetcher import bad_answer
from crucible.catalog.rows import Row
from crucible.core.compute.pricing import MICROS

MIN_COVERAGE = 0.5
"""Share of the known instance types that a response must have prices for; otherwise it is incomplete or not a list."""
MAX_PROBLEMS = 100


@dataclass
class Quotes:
    """The prices read so far from one provider's response, by region and instance type, in micro-dollars an hour.

    `shapes`: a known row of each instance type, which gives its size.
    """

    provider: str
    shapes: Mapping[str, Row]
    day: date
    prices: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    interruption: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)

    def add(self, region: str, instance_type: str, column: str, price: object, currency: object = "USD") -> None:
        """Add a price in dollars an hour. An invalid one becomes a problem; the lower of two prices counts."""
        label = f"{self.provider} {region} {instance_type}"
        amount = amount_of(price)
        if currency != "USD":
            what = f"The {column} price is in {currency!s:.20}, not in US dollars."
            self._refuse(Rule.UNREADABLE, label, what, column)
        elif amount is None:
            self._refuse(Rule.UNREADABLE, label, f"The {column} price {price!r:.60} is not valid.", column)
        elif amount <= 0:
            rule = Rule.ZERO if amount == 0 else Rule.NEGATIVE
            self._refuse(rule, label, f"The {column} price is {amount:g}.", column)
        else:
            prices = self.prices.setdefault((region, instance_type), {})
            prices[column] = min(prices.get(column, 10**15), round(amount * MICROS))

    def _refuse(self, rule: Rule, label: str, what: str, column: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            fix = "Nothing to do: the old price stays in use."
            self.problems.append(Finding(rule, label, what, fix, column, "the response"))

    def rows(self) -> Iterator[Row]:
        """Yield a row, dated today, for each region and instance type with a price."""
        for (region, instance_type), prices in sorted(self.prices.items()):
            yield replace(
                self.shapes[instance_type],
                region=region,
                on_demand=prices.get("on_demand"),
                spot=prices.get("spot"),
                reserved_1y=prices.get("reserved_1y"),
                reserved_3y=prices.get("reserved_3y"),
                interruption=self.interruption.get((region, instance_type), ""),
                dated=self.day.isoformat(),
                origin=f"the response ({instance_type} {region})",
            )

    def check_whole(self, known: Iterable[Row], regions: Iterable[str]) -> None:
        """Raise BadAnswer if the response has too few of the instance types known in these regions."""
        expected = {(row.region, row.instance_type) for row in known if row.region in set(regions)}
        priced = expected & {key for key, prices in self.prices.items() if "on_demand" in prices}
        if not self.prices or len(priced) < MIN_COVERAGE * len(expected):
            why = f"Its response has prices for only {len(priced)} of {len(expected)} known instance types."
            raise bad_answer(self.provider, why)


@dataclass(frozen=True)
class RefreshResult:
    """The stored rows, findings on the prices that were refused, and notes for the user."""

    rows: tuple[Row, ...]
    refused: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def amount_of(value: object) -> float | None:
    """Return the number in a JSON value, which may be a string; None if it has none, or an absurd one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e9 else None
