"""The command `crucible-sim`: runs seeds, prints what broke and how to see it again, and counts last."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from crucible.simulation.faults.run import Outcome, run

LAST_LINES = 40


@dataclass(frozen=True)
class Told:
    """What is told of one seed; a process hands it to another."""

    seed: int
    broken: str
    virtual_seconds: float
    digest: str
    lines: tuple[str, ...]


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant broke."""
    asked = _parser().parse_args(words)
    seeds = [asked.seed] if asked.seed is not None else list(range(asked.first, asked.first + asked.seeds))
    began, broken, hours = time.monotonic(), 0, 0.0
    for told in _run(seeds, asked.processes, trace=asked.trace):
        hours += told.virtual_seconds / 3600
        broken += bool(told.broken)
        _show(told, always=asked.seed is not None)
    took = time.monotonic() - began
    _print(f"{len(seeds)} seeds, {hours:.0f} virtual hours, {broken} broken, {took:.0f} s")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="crucible-sim", description="The control plane under seeded faults.")
    parser.add_argument("--seed", type=int, help="run this one and show its trace")
    parser.add_argument("--seeds", type=int, default=200, metavar="COUNT", help="run so many (default 200)")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="N", help="the first of them (default 1)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="share the work (default 1)")
    parser.add_argument("--trace", action="store_true", help="show all that happened, not only the last lines")
    return parser


def _run(seeds: list[int], processes: int, *, trace: bool) -> Iterator[Told]:
    if processes <= 1 or len(seeds) == 1:
        yield from (_tell(run(seed), trace=trace) for seed in seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_one, seeds, [trace] * len(seeds))


def _one(seed: int, trace: bool) -> Told:
    return _tell(run(seed), trace=trace)


def _tell(outcome: Outcome, *, trace: bool) -> Told:
    lines = outcome.trace.last(len(outcome.trace.lines) if trace else LAST_LINES)
    return Told(outcome.seed, outcome.broken, outcome.seconds, outcome.digest, tuple(lines))


def _show(told: Told, *, always: bool) -> None:
    if not told.broken and not always:
        return
    for line in told.lines:
        _print(line)
    _print(f"seed {told.seed}: {told.broken or 'all held'} (trace {told.digest[:16]})")
    if told.broken:
        _print(f"again: crucible-sim --seed {told.seed}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
