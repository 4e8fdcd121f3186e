"""`python -m benchmarks.prove`: run rows one after the other, store their results, and render the page."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scale import PROVE, parsed

from benchmarks.prove import page
from benchmarks.prove.peers import planted
from benchmarks.prove.results import Result, load, save
from benchmarks.prove.rows import ROWS, Row, chosen
from benchmarks.prove.runner import Runner
from crucible.core.compute.resources import format_duration
from crucible.core.errors import BadInput, CrucibleError

ROOT = Path(__file__).parents[2]
RESULTS = Path("benchmarks/results/prove.json")
PAGE = Path("docs/reliability.md")
LOGS = Path(".cache/prove")
INTERRUPTED = 130


@dataclass(frozen=True)
class Place:
    """Paths of a run, all below `root`: the results file, and the page to render."""

    root: Path = ROOT
    results: Path = RESULTS
    page: Path | None = PAGE


def main(words: Sequence[str], rows: tuple[Row, ...] = ROWS, place: Place | None = None) -> int:
    """Run the command; return 0 if all rows held, 1 if not, 2 for invalid arguments, 130 if interrupted."""
    asked = _parser(rows).parse_args(words)
    try:
        return _obey(asked, rows, _place(asked, place or Place()))
    except CrucibleError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def _parser(rows: tuple[Row, ...]) -> argparse.ArgumentParser:
    names = ", ".join(row.name for row in rows)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prove", description="Run the tests of docs/reliability.md at full scale."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to run (default: all): {names}")
    parser.add_argument(
        "--scale", default="prove", help="sizes (tests/scale.py), such as kills=1,seeds=5; needs --results"
    )
    parser.add_argument(
        "--results", type=Path, help=f"write the results to this file and leave {RESULTS} and {PAGE} unchanged"
    )
    parser.add_argument("--render", action="store_true", help=f"run nothing; render the figures in {PAGE} again")
    parser.add_argument("--list", action="store_true", help="run nothing; list the rows")
    return parser


def _place(asked: argparse.Namespace, place: Place) -> Place:
    return place if asked.results is None else Place(place.root, asked.results.absolute(), page=None)


def _obey(asked: argparse.Namespace, rows: tuple[Row, ...], place: Place) -> int:
    wanted = chosen(asked.rows, rows)
    _check_scale(asked.scale, place)
    if asked.list:
        return _list(wanted)
    if asked.render:
        return _render(place)
    load(place.root / place.results)
    return _run(wanted, Runner(place.root, place.root / LOGS, asked.scale, _say), place)


def _check_scale(scale: str, place: Place) -> None:
    try:
        parsed(scale)
    except pytest.UsageError as error:
        raise BadInput(f"{error}.") from error
    if scale != "prove" and place.page is not None:
        raise BadInput(f"{place.page} contains full runs only.", fix="Write this run to another file: --results FILE.")


def _list(rows: tuple[Row, ...]) -> int:
    for row in rows:
        _say(f"{row.name:<12} {row.title}: {row.asked(PROVE)}")
    return 0


def _render(place: Place) -> int:
    if place.page is not None:
        page.rewrite(place.root / place.page, load(place.root / place.results), planted(ROOT))
    return 0


def _run(rows: tuple[Row, ...], runner: Runner, place: Place) -> int:
    """Run the rows; finished rows and pieces survive an interruption."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    done: dict[str, Result] = {}
    interrupted = False
    try:
        for row in rows:
            _say(f"\n== {row.name}: {row.title}")
            done[row.name] = result = runner.run(row)
            path = place.root / place.results
            save(path, load(path).having(row.name, result))
    except KeyboardInterrupt:
        interrupted = True
    _render(place)
    _summarise(rows, done, place)
    if interrupted:
        return INTERRUPTED
    return 1 if any(result.problem for result in done.values()) else 0


def _summarise(rows: tuple[Row, ...], done: dict[str, Result], place: Place) -> None:
    _say("\n== time of each row")
    for row in rows:
        result = done.get(row.name)
        if result is None:
            _say(f"{row.name:<12} not done: interrupted")
        else:
            _say(f"{row.name:<12} {format_duration(result.seconds):>9}  {_outcome(result)}")
    _say(f"Results: {place.results}. Output: {LOGS}.")


def _outcome(result: Result) -> str:
    return f"FAILED ({result.problem})" if result.problem else "held"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
