"""`python -m benchmarks.figures`: measure commands, starts, submissions, searches and sockets on this computer.

Prints each figure with its bound, and keeps them, with the computer and the commit they are of, in
benchmarks/results/figures.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.figures import measurements, plans, sockets
from benchmarks.figures.deployment import Running, running
from benchmarks.figures.figure import Figure
from benchmarks.prove.environment import Machine, Source, this_machine, this_source

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "figures.json"


class Measured(BaseModel):
    """Figures, with their time, computer and commit. `load`: the load average before the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime
    machine: Machine
    source: Source
    load: float
    figures: tuple[Figure, ...]


def main(words: Sequence[str]) -> None:
    """Report the figures; one above its bound is marked, but is not a failure."""
    asked = _parser().parse_args(words)
    load = _load()
    with tempfile.TemporaryDirectory(prefix="crucible-figures-") as folder:
        found = _measured(Path(folder), asked)
    kept = Measured(
        at=datetime.now(UTC), machine=this_machine(), source=this_source(ROOT), load=load, figures=tuple(found)
    )
    if asked.keep is not None:
        asked.keep.parent.mkdir(parents=True, exist_ok=True)
        asked.keep.write_text(kept.model_dump_json(indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{kept.machine}; load before: {load:g}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="runs of each command; a third as many starts")
    parser.add_argument("--submits", type=int, default=500)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of output that is searched")
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--plans", type=int, default=100, help="how often each part of a plan is asked for")
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the figures are written")
    parser.add_argument("--only", nargs="+", choices=("starts", *ON_A_SERVER), help="some of them")
    return parser


Measure = Callable[[Running, argparse.Namespace], list[Figure]]

ON_A_SERVER: dict[str, Measure] = {
    "commands": lambda server, asked: measurements.commands(server, asked.times),
    "submits": lambda server, asked: measurements.submits(server, asked.submits),
    "sockets": lambda server, asked: sockets.crowd(server, asked.sockets, asked.events),
    "search": lambda server, asked: measurements.search(server, asked.lines, 5),
    "plans": lambda server, asked: plans.plans(server, asked.plans),
}
"""Measurements, each on a fresh server, so that none affects the next."""


def _measured(folder: Path, asked: argparse.Namespace) -> list[Figure]:
    wanted = asked.only or ("starts", *ON_A_SERVER)
    found: list[Figure] = []
    if "starts" in wanted:
        found += _told(measurements.starts(folder / "starts", max(asked.times // 3, 1)))
    for name, measure in ON_A_SERVER.items():
        if name in wanted:
            with running(folder / name) as server:
                found += _told(measure(server, asked))
    return found


def _told(figures: list[Figure]) -> list[Figure]:
    for figure in figures:
        sys.stdout.write(f"{figure}\n")
        sys.stdout.flush()
    return figures


def _load() -> float:
    return float(Path("/proc/loadavg").read_text().split()[0])
