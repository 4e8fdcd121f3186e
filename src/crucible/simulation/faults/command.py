"""The command `crucible-sim`: runs seeds, prints what broke and how to see it again, and counts last."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

from crucible.simulation.faults.run import Outcome, run

LAST_LINES = 40
AHEAD = 4
"""Seeds that wait for each process."""
MOST_SEEDS = 10_000_000
MOST_PROCESSES = 256
COLLECT_AFTER = (50_000, 20, 20)
"""What gc.set_threshold takes."""
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Told:
    """What is told of one seed; a process hands it to another."""

    seed: int
    broken: str
    virtual_seconds: float
    digest: str
    lines: tuple[str, ...]


@dataclass
class Counts:
    """What a command says last, also when somebody ends it early."""

    asked: int
    began: float
    ran: int = 0
    broken: int = 0
    hours: float = 0.0

    def add(self, told: Told) -> None:
        self.ran += 1
        self.broken += bool(told.broken)
        self.hours += told.virtual_seconds / 3600

    def __str__(self) -> str:
        of = "" if self.ran == self.asked else f" of {self.asked}"
        took = time.monotonic() - self.began
        return f"{self.ran}{of} seeds, {self.hours:.0f} virtual hours, {self.broken} broken, {took:.0f} s"


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant broke, 2 for what cannot be run, 130 when somebody ended it early."""
    parser = _parser()
    asked = parser.parse_args(words)
    wrong = _wrong(asked)
    if wrong:
        parser.error(wrong)
    count = 1 if asked.seed is not None else asked.seeds
    first = asked.first if asked.seed is None else asked.seed
    counts = Counts(count, time.monotonic())
    ended = _run_all(range(first, first + count), asked, counts)
    _print(str(counts))
    if counts.broken:
        return 1
    return 0 if ended else 130


def _run_all(seeds: range, asked: argparse.Namespace, counts: Counts) -> bool:
    """Whether all of them were run: Ctrl-C ends it early."""
    try:
        for told in _run(seeds, min(asked.processes, len(seeds)), trace=asked.trace):
            counts.add(told)
            _show(told, always=asked.seed is not None)
    except KeyboardInterrupt:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="crucible-sim", description="The control plane under seeded faults.")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one and show its trace")
    parser.add_argument("--seeds", type=int, metavar="COUNT", help="run so many (default 200)")
    parser.add_argument("--from", type=int, dest="first", metavar="N", help="the first of them (default 1)")
    cores = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=cores, metavar="N", help=f"share the work (default {cores})")
    parser.add_argument("--trace", action="store_true", help="show all that happened, not only the last lines")
    return parser


def _wrong(asked: argparse.Namespace) -> str:
    """What is wrong with the words and what to type instead; empty when nothing is. Fills in what was not said."""
    if asked.seed is not None and (asked.seeds is not None or asked.first is not None):
        return "--seed runs one seed: leave out --seeds and --from, or --seed."
    asked.seeds = 200 if asked.seeds is None else asked.seeds
    asked.first = 1 if asked.first is None else asked.first
    if not 1 <= asked.seeds <= MOST_SEEDS:
        return f"--seeds {asked.seeds}: give a count from 1 to {MOST_SEEDS:,}, such as --seeds 200."
    last = asked.seed if asked.seed is not None else asked.first + asked.seeds - 1
    if min(last, asked.first) < 0 or last > LARGEST_SEED:
        return f"Seeds are whole numbers from 0 to {LARGEST_SEED}: give a smaller one, such as --from 1."
    if not 1 <= asked.processes <= MOST_PROCESSES:
        return f"--processes {asked.processes}: give a number from 1 to {MOST_PROCESSES}."
    return ""


def _run(seeds: range, processes: int, *, trace: bool) -> Iterator[Told]:
    """In the order of the seeds."""
    if processes == 1:
        _collect_seldom()
        yield from (_one(seed, trace) for seed in seeds)
        return
    with ProcessPoolExecutor(processes, initializer=_begin_work) as pool:
        try:
            yield from _in_order(pool, seeds, processes, trace)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, seeds: range, processes: int, trace: bool) -> Iterator[Told]:
    """A few are under way at a time, however many there are."""
    under_way: deque[Future[Told]] = deque()
    for seed in seeds:
        under_way.append(pool.submit(_one, seed, trace))
        if len(under_way) >= processes * AHEAD:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _begin_work() -> None:
    """Ctrl-C ends it at once and quietly: the command says what was done."""
    _collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _collect_seldom() -> None:
    """A world is small and soon over: looking for its garbage all the time takes a tenth of the processor."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


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
