"""Rows: one instance type in one region with its prices, as they stand in a file.

A file is CSV with a head line, one provider each. Prices are dollars an hour; an empty field is not known. What cannot
be read as a row is told as a finding and left out, so one bad line costs one line.
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
"""The columns of prices, each with its market and the years it binds to."""

INTERRUPTION: Mapping[str, tuple[float, float]] = {
    "<5%": (0.0, 0.05),
    "5-10%": (0.05, 0.10),
    "10-15%": (0.10, 0.15),
    "15-20%": (0.15, 0.20),
    ">20%": (0.20, 1.0),
}
"""The classes in which providers say how many spot machines they take back in a month."""

LONGEST_FIELD = 200


@dataclass(frozen=True, slots=True)
class Row:
    """Prices in micro-dollars an hour; None: not known. `origin`: where it stands, for findings."""

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
    def called(self) -> str:
        return f"{self.provider} {self.region} {self.instance_type}"

    def prices(self) -> list[tuple[str, int]]:
        """Those that are known, by column."""
        found = (
            ("on_demand", self.on_demand),
            ("spot", self.spot),
            ("reserved_1y", self.reserved_1y),
            ("reserved_3y", self.reserved_3y),
        )
        return [(column, price) for column, price in found if price is not None]

    def without(self, columns: Container[str]) -> Row:
        """The same without these prices."""
        return replace(
            self,
            on_demand=None if "on_demand" in columns else self.on_demand,
            spot=None if "spot" in columns else self.spot,
            reserved_1y=None if "reserved_1y" in columns else self.reserved_1y,
            reserved_3y=None if "reserved_3y" in columns else self.reserved_3y,
        )


@dataclass(frozen=True)
class Read:
    """What a text held: its rows, and what is wrong with the rest."""

    rows: tuple[Row, ...]
    findings: tuple[Finding, ...] = ()


def read_rows(text: str, provider: str, origin: str) -> Read:
    """Every line that is a row; a finding for each that is none."""
    rows: list[Row] = []
    findings: list[Finding] = []
    reader = csv.reader(io.StringIO(text))
    try:
        head = tuple(next(reader, ()))
        if head != HEAD:
            what = f"its first line is not {','.join(HEAD)}"
            return Read((), (_unreadable(f"{origin}:1", what, provider),))
        for number, cells in enumerate(reader, start=2):
            try:
                rows.append(_row(cells, provider, f"{origin}:{number}"))
            except ValueError as error:
                findings.append(_unreadable(f"{origin}:{number}", str(error), provider))
    except csv.Error as error:
        findings.append(_unreadable(f"{origin}:{reader.line_num}", str(error), provider))
    return Read(tuple(rows), tuple(findings))


def write_rows(rows: Iterable[Row]) -> str:
    """The text that `read_rows` reads back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for row in rows:
        prices = (row.on_demand, row.spot, row.reserved_1y, row.reserved_3y)
        size = (row.gpu, row.gpus, _short(row.vcpus), _short(row.memory_bytes / GiB))
        writer.writerow((row.region, row.instance_type, *size, *map(_dollars, prices), *_about(row)))
    return out.getvalue()


def _about(row: Row) -> tuple[str, str, str]:
    return row.interruption, row.price_list, row.dated


def _row(cells: list[str], provider: str, origin: str) -> Row:
    if len(cells) != len(HEAD):
        raise ValueError(f"it has {len(cells)} fields, not {len(HEAD)}")
    if any(len(cell) > LONGEST_FIELD for cell in cells):
        raise ValueError(f"a field is longer than {LONGEST_FIELD} characters")
    region, kind, gpu, gpus, vcpus, memory, on_demand, spot, one, three, interruption, source, dated = cells
    return Row(
        provider,
        region,
        kind,
        gpu,
        int(gpus or 0),
        _number(vcpus),
        round(_number(memory) * GiB),
        _micros(on_demand),
        _micros(spot),
        _micros(one),
        _micros(three),
        interruption,
        source,
        dated,
        origin,
    )


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no amount")
    return number


def _micros(text: str) -> int | None:
    return round(_number(text) * MICROS) if text else None


def _dollars(micros: int | None) -> str:
    return "" if micros is None else f"{micros / MICROS:.6f}".rstrip("0").rstrip(".")


def _short(number: float) -> str:
    return f"{number:.4f}".rstrip("0").rstrip(".")


def _unreadable(origin: str, what: str, provider: str) -> Finding:
    fix = "Mend the line, or remove it."
    return Finding(Rule.UNREADABLE, f"{provider} ({origin})", f"The line cannot be read: {what}.", fix, origin=origin)
