"""Points with a label of 0 or 1: made from a seed, or read from a file."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Row = tuple[tuple[float, ...], int]
HELD_OUT = 5
"""Every so many-th row is for validation."""


@dataclass(frozen=True)
class Batches:
    """Rows in batches, in another order at each pass; the same seed and pass give the same order."""

    rows: Sequence[Row]
    size: int
    seed: int

    def at(self, epoch: int) -> Iterator[Sequence[Row]]:
        order = list(self.rows)
        random.Random(f"{self.seed}:{epoch}").shuffle(order)
        return (order[start : start + self.size] for start in range(0, len(order), self.size))


def split(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows to learn from and rows to check by."""
    learnt = [row for number, row in enumerate(rows) if number % HELD_OUT]
    return learnt, [row for number, row in enumerate(rows) if not number % HELD_OUT]


def made(samples: int, features: int, seed: int) -> list[Row]:
    """Two clouds of points that overlap a little."""
    draw = random.Random(seed)
    rows = []
    for number in range(samples):
        label = number % 2
        centre = 1.0 if label else -1.0
        rows.append((tuple(draw.gauss(centre, 1.0) for _ in range(features)), label))
    return rows


def read(path: Path) -> list[Row]:
    """The rows of a CSV file: numbers, the label last. Raises ValueError that names the line."""
    rows: list[Row] = []
    with open(path, newline="", encoding="utf-8") as file:
        for number, line in enumerate(csv.reader(file), 1):
            try:
                *values, label = line
                row = (tuple(float(value) for value in values), int(label))
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from error
            if row[1] not in (0, 1) or not row[0] or (rows and len(row[0]) != len(rows[0][0])):
                raise ValueError(f"{path.name}, line {number}: wanted numbers, then a label of 0 or 1")
            rows.append(row)
    if len(rows) < HELD_OUT:
        raise ValueError(f"{path.name} has {len(rows)} rows; at least {HELD_OUT} are needed")
    return rows
