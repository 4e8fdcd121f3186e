"""Render the table of figures: the size of each row, and its latest measurement."""

from __future__ import annotations

from collections.abc import Iterator

from tests.scale import PROVE, TEST

from benchmarks.prove.figures import Measured, Number, Spread
from benchmarks.prove.markdown import head, line, links
from benchmarks.prove.results import Result, Results
from benchmarks.prove.rows import MISSING, ROWS, Missing, Row
from crucible.core.compute.resources import format_duration

HEAD = ("what", "promises", "in `make test`", "in `make prove`", "what must hold", "latest measurement")
UNTOLD = ("seed", "seen", "found")
"""Values that identify a run, or are shown elsewhere, and measure nothing."""
SHORT = 10
"""Shown length of a commit's hash."""


def figure_table(results: Results) -> Iterator[str]:
    yield from head(HEAD)
    yield from (line(_row(row, results.rows.get(row.name))) for row in ROWS)
    yield from (line(_missing(row)) for row in MISSING)
    machines = {str(result.machine) for result in results.rows.values()}
    if machines:
        yield ""
        yield from (f"Measured on {machine}{_those(machine, results, machines)}." for machine in sorted(machines))


def _those(machine: str, results: Results, machines: set[str]) -> str:
    if len(machines) == 1:
        return ""
    return ": " + ", ".join(name for name, result in results.rows.items() if str(result.machine) == machine)


def _row(row: Row, result: Result | None) -> tuple[str, ...]:
    what = f"{row.title} (`{row.name}`)"
    shown = f"{row.asked(TEST)}: {links(row.tests)}"
    return what, _promises(row.promises), shown, row.asked(PROVE), row.holds, _measured(result)


def _missing(row: Missing) -> tuple[str, ...]:
    shown = f"{row.there}: {links(row.tests)}" if row.tests else row.there
    return row.title, _promises(row.promises), shown, f"not there yet: {row.why}", "", ""


def _promises(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _measured(result: Result | None) -> str:
    if result is None:
        return "not yet run"
    outcome = f"**failed** ({result.problem})" if result.problem else "held"
    scale = "" if result.scale == "prove" else f" at {result.scale}"
    counted = ", ".join(f"{_number(number)} {what}" for what, number in result.counts.items())
    several = len({each.name for each in result.figures}) > 1
    told = "; ".join(filter(None, (*(_figure(each, named=several) for each in result.figures), counted)))
    return f"{outcome}{scale}: {told}. {_when(result)}"


def _when(result: Result) -> str:
    commit = f"`{result.source.commit[:SHORT]}`" if result.source.commit else "no commit"
    changed = "" if result.source.clean or not result.source.commit else " with changes"
    return f"{commit}{changed}, {result.began:%Y-%m-%d}, in {format_duration(result.seconds)}"


def _figure(measured: Measured, *, named: bool) -> str:
    """Render a measurement; with its name only if the row has several."""
    about = [measured.name] if named else []
    about += [f"{_name(name)} {text}" for name, text in measured.words.items() if name not in UNTOLD]
    about += [f"{measured.times} times"] if measured.times > 1 else []
    numbers = (f"{_name(name)} {_spread(spread)}" for name, spread in measured.numbers.items() if name not in UNTOLD)
    return ": ".join(filter(None, (", ".join(about), ", ".join(numbers))))


def _name(name: str) -> str:
    return name.replace("_", " ")


def _spread(spread: Spread) -> str:
    least, most = _number(spread.least), _number(spread.most)
    return least if least == most else f"{least} to {most}"


def _number(number: Number) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.2f}".rstrip("0").rstrip(".")
