"""Rows: one instance type in one region with its prices, and the CSV files that hold them.

A file has a header line and the rows of one provider. Prices are in dollars an hour; an empty field means unknown. A
line that cannot be read becomes a finding, and the other lines are still used.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from crucible.catalog.findings import Finding, Rule
from crucible.core.compute.offers import Market
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import GiB

HEAD = (
    "region",
    "instance_type",
    "gpu",
    "gpus",
    "vcpus",
    "memory_gib",
    "on_demand",
    "spot",
    "reserved_1y",
    "reserved_3y",
    "interruption",
    "price_list",
    "dated",
)
PRICES: Mapping[str, tuple[Market, int]] = {
    "on_demand": (Market.ON_DEMAND, 0),
    "spot": (Market.SPOT, 0),
    "reserved_1y": (Market.RESERVED, 1),
    "reserved_3y": (Market.RESERVED, 3),
}
"""The price columns, each with its market and the years of commitment."""

INTERRUPTION: Mapping[str, tuple[float, float]] = {
    "<5%": (0.0, 0.05),
    "5-10%": (0.05, 0.10),
    "10-15%": (0.10, 0.15),
    "15-20%": (0.15, 0.20),
    ">20%": (0.20, 1.0),
}
"""Classes of the share of spot machines that are interrupted in a month, as in AWS's Spot Advisor."""

MAX_FIELD_CHARS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """Prices in micro-dollars an hour, None if unknown. `origin`: the file and line, for findings."""

    provider: str
    region: str
    instance_type: str
    gpu: str
    gpus: int
    vcpus: float
    memory_bytes: int
    on_demand: int | None
    spot: int | None
    reserved_1y: int | None
    reserved_3y: int | None
    interruption: str
    price_list: str
    dated: str
    origin: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.provider, self.region, self.instance_type

    @property
    def label(self) -> str:
        return f"{self.provider} {self.region} {self.instance_type}"

    def prices(self) -> list[tuple[str, int]]:
        """Return the known prices with their columns."""
        prices = (
            ("on_demand", self.on_demand),
            ("spot", self.spot),
            ("reserved_1y", self.reserved_1y),
            ("reserved_3y", self.reserved_3y),
        )
        return [(column, price) for column, price in prices if price is not None]

    def without(self, columns: Container[str]) -> Row:
        """Return the row without the prices of these columns."""
        return replace(
            self,
            on_demand=None if "on_demand" in columns else self.on_demand,
            spot=None if "spot" in columns else self.spot,
            reserved_1y=None if "reserved_1y" in columns else self.reserved_1y,
            reserved_3y=None if "reserved_3y" in columns else self.reserved_3y,
        )


@dataclass(frozen=True)
class ParsedRows:
    """The rows of a file, and a finding for each line that is not one."""

    rows: tuple[Row, ...]
    findings: tuple[Finding, ...] = ()


def read_rows(text: str, provider: str, origin: str) -> ParsedRows:
    """Parse a file. `origin`: its name, for the findings."""
    rows: list[Row] = []
    findings: list[Finding] = []
    reader = csv.reader(io.StringIO(text))
    try:
        head = tuple(next(reader, ()))
        if head != HEAD:
            what = f"its first line is not {','.join(HEAD)}"
            return ParsedRows((), (_unreadable(f"{origin}:1", what, provider),))
        for number, cells in enumerate(reader, start=2):
            try:
                rows.append(_row(cells, provider, f"{origin}:{number}"))
            except ValueError as error:
                findings.append(_unreadable(f"{origin}:{number}", str(error), provider))
    except csv.Error as error:
        findings.append(_unreadable(f"{origin}:{reader.line_num}", str(error), provider))
    return ParsedRows(tuple(rows), tuple(findings))


def write_rows(rows: Iterable[Row]) -> str:
    """Return the rows as CSV, which `read_rows` reads back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for row in rows:
        prices = (row.on_demand, row.spot, row.reserved_1y, row.reserved_3y)
        size = (row.gpu, row.gpus, _decimal(row.vcpus), _decimal(row.memory_bytes / GiB))
        terms = (row.interruption, row.price_list, row.dated)
        writer.writerow((row.region, row.instance_type, *size, *map(_dollars, prices), *terms))
    return out.getvalue()


def _row(cells: list[str], provider: str, origin: str) -> Row:
    if len(cells) != len(HEAD):
        raise ValueError(f"it has {len(cells)} fields, not {len(HEAD)}")
    if any(len(cell) > MAX_FIELD_CHARS for cell in cells):
        raise ValueError(f"a field is longer than {MAX_FIELD_CHARS} characters")
    region, instance_type, gpu, gpus, vcpus, memory = cells[:6]
    on_demand, spot, one_year, three_years, interruption, price_list, dated = cells[6:]
    return Row(
        provider,
        region,
        instance_type,
        gpu,
        int(gpus or 0),
        _number(vcpus),
        round(_number(memory) * GiB),
        _micros(on_demand),
        _micros(spot),
        _micros(one_year),
        _micros(three_years),
        interruption,
        price_list,
        dated,
        origin,
    )


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a finite number")
    return number


def _micros(text: str) -> int | None:
    return round(_number(text) * MICROS) if text else None


def _dollars(micros: int | None) -> str:
    return "" if micros is None else f"{micros / MICROS:.6f}".rstrip("0").rstrip(".")


def _decimal(number: float) -> str:
    return f"{number:.4f}".rstrip("0").rstrip(".")


def _unreadable(origin: str, what: str, provider: str) -> Finding:
    fix = "Correct the line, or remove it."
    return Finding(Rule.UNREADABLE, f"{provider} ({origin})", f"The line cannot be read: {what}.", fix, origin=origin)
