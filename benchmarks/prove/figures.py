"""Measurements of a row: lines of JSON from its tests (tests/scale.py), and the counts that commands print last.

A test may measure the same thing many times. Lines of one test with the same texts are combined, keeping the lowest and
highest value of each number; nothing is added up.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeGuard

from pydantic import BaseModel, ConfigDict

from crucible.core.errors import Trouble

Number = int | float
COUNT = re.compile(r"(\d+) ([a-z]+(?: [a-z]+)?)(?=,| in |$)")
ABOUT = ("row", "test")
"""Keys of a line that identify it."""


class Spread(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    least: Number
    most: Number


class Measured(BaseModel):
    """Measurements of one test with the same name and texts, combined from `times` lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    test: str
    times: int
    numbers: dict[str, Spread]
    words: dict[str, str]


def read(path: Path) -> tuple[Measured, ...]:
    """Return the measurements in a file, or none without a file. Raises Trouble for an invalid line."""
    if not path.exists():
        return ()
    lines = [_line(text, number) for number, text in enumerate(path.read_text().splitlines(), start=1)]
    alike: dict[tuple[str, ...], list[dict[str, object]]] = {}
    for line in lines:
        alike.setdefault((str(line["row"]), _test(line), *_words(line).values()), []).append(line)
    return tuple(_together(each) for each in alike.values())


def together(found: Iterable[Measured]) -> tuple[Measured, ...]:
    """Combine measurements of several runs with the same names and texts."""
    alike: dict[tuple[str, ...], list[Measured]] = {}
    for each in found:
        alike.setdefault((each.name, each.test, *each.words.values()), []).append(each)
    return tuple(_merged(each) for each in alike.values())


def counts(output: str) -> dict[str, int]:
    """Return the counts in the last line of output, such as `12 passed, 1 skipped in 3.21s`, by their words."""
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return {what: int(number) for number, what in COUNT.findall(last) if what != "s"}


def sum_of(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in found:
        total.update(each)
    return dict(total)


def _line(text: str, number: int) -> dict[str, object]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict) or not isinstance(line.get("row"), str):
        raise Trouble(f"Line {number} of the figures is invalid.", why="A test may have been killed while it wrote.")
    return line


def _together(lines: list[dict[str, object]]) -> Measured:
    """Combine lines with the same texts."""
    names = dict.fromkeys(name for line in lines for name in _numbers(line))
    found = {name: [_numbers(line)[name] for line in lines if name in _numbers(line)] for name in names}
    numbers = {name: Spread(least=min(each), most=max(each)) for name, each in found.items()}
    first = lines[0]
    return Measured(name=str(first["row"]), test=_test(first), times=len(lines), numbers=numbers, words=_words(first))


def _merged(found: list[Measured]) -> Measured:
    names = dict.fromkeys(name for each in found for name in each.numbers)
    spreads = {name: [each.numbers[name] for each in found if name in each.numbers] for name in names}
    numbers = {
        name: Spread(least=min(each.least for each in spread), most=max(each.most for each in spread))
        for name, spread in spreads.items()
    }
    return found[0].model_copy(update={"times": sum(each.times for each in found), "numbers": numbers})


def _test(line: dict[str, object]) -> str:
    """Return the test's name without its parameters."""
    return str(line.get("test", "")).partition("[")[0]


def _numbers(line: dict[str, object]) -> dict[str, Number]:
    return {name: value for name, value in line.items() if name not in ABOUT and _is_number(value)}


def _words(line: dict[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in line.items() if name not in ABOUT and not _is_number(value)}


def _is_number(value: object) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
