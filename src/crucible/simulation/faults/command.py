"""The command `crucible-sim`: runs seeds, prints what broke and how to see it again, and counts last."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

from crucible.control.reconcile.crashpoints import NAMES
from crucible.simulation.faults.run import Outcome, run
from crucible.simulation.faults.world.process import DIES

SEEDS = 200
LAST_LINES = 40
TELL_EVERY = 50
ENDED_EARLY = 130
AHEAD = 4
"""Seeds that wait for each process."""
MOST_SEEDS = 10_000_000
MOST_PROCESSES = 256
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class SeedReport:
    """What is told of one seed; a process hands it to another."""

    seed: int
    broken: str
    virtual_seconds: float
    cpu_seconds: float
    digest: str
    deaths: tuple[str, ...]
    """Where its control planes died."""
    lines: tuple[str, ...]


@dataclass
class RunTotals:
    """What a command says last, also when somebody ends it early."""

    asked: int
    began: float
    ran: int = 0
    broken: int = 0
    hours: float = 0.0
    cpu_seconds: float = 0.0
    deaths: Counter[str] = field(default_factory=Counter)

    def add(self, told: SeedReport) -> None:
        self.ran += 1
        self.broken += bool(told.broken)
        self.hours += told.virtual_seconds / 3600
        self.cpu_seconds += told.cpu_seconds
        self.deaths.update(told.deaths)

    def __str__(self) -> str:
        seeds = f"{self.ran} seed{'' if self.ran == 1 else 's'}"
        of = "" if self.ran == self.asked else f" of {self.asked}"
        took = f"{time.monotonic() - self.began:.0f} s, {self.cpu_seconds / max(self.ran, 1):.2f} s of processor a seed"
        return f"{seeds}{of}, {self.hours:.0f} virtual hours, {self.broken} broken, {took}"

    @property
    def where_it_died(self) -> str:
        named = {name: self.deaths[name] for name in sorted(NAMES)}
        never = [name for name, times in named.items() if not times]
        missed = f", never at {', '.join(never)}" if never else ""
        points = f"{len(named) - len(never)} of {len(named)} named points"
        return f"the control plane died {self.deaths.total()} times, at {points}{missed}"


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant broke, 2 for what cannot be run, 130 when somebody ended it early."""
    parser = _parser()
    asked = parser.parse_args(words)
    wrong = _find_mistake(asked)
    if wrong:
        parser.error(wrong)
    try:
        return _run_command(asked)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ENDED_EARLY


def _run_command(asked: argparse.Namespace) -> int:
    count = 1 if asked.seed is not None else asked.seeds or SEEDS
    first = asked.seed if asked.seed is not None else _first(asked)
    counts = RunTotals(count, time.monotonic())
    if count > 1:
        _print_progress(f"{count} seeds from {first}, {min(asked.processes, count)} at a time, about a second each.")
    ended = _run_all(range(first, first + count), asked, counts)
    if count > 1:
        _print(counts.where_it_died)
    _print(str(counts))
    if counts.broken:
        return 1
    return 0 if ended else ENDED_EARLY


def _run_all(seeds: range, asked: argparse.Namespace, counts: RunTotals) -> bool:
    """Whether all of them were run: Ctrl-C ends it early."""
    try:
        for told in _run_seeds(seeds, min(asked.processes, len(seeds)), trace=asked.trace):
            counts.add(told)
            _print_report(told, always=asked.seed is not None)
            if counts.ran % TELL_EVERY == 0 and counts.ran < counts.asked:
                _print_progress(f"{counts.ran} of {counts.asked}, {counts.broken} broken")
    except KeyboardInterrupt:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="crucible-sim", description="The control plane under seeded faults.")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one and show its last lines")
    parser.add_argument("--seeds", type=int, metavar="COUNT", help=f"run so many (default {SEEDS})")
    parser.add_argument("--from", type=int, dest="first", metavar="N", help="the first of them (default 1)")
    cores = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=cores, metavar="N", help=f"share the work (default {cores})")
    parser.add_argument("--trace", action="store_true", help="show all that happened, not only the last lines")
    return parser


def _find_mistake(asked: argparse.Namespace) -> str:
    """What is wrong with the words and what to type instead; empty when nothing is."""
    if asked.seed is not None and (asked.seeds is not None or asked.first is not None):
        return "--seed runs one seed: leave out --seeds and --from, or --seed."
    seeds = SEEDS if asked.seeds is None else asked.seeds
    if not 1 <= seeds <= MOST_SEEDS:
        return f"--seeds {seeds}: give a count from 1 to {MOST_SEEDS:,}, such as --seeds {SEEDS}."
    for option, number in (("--seed", asked.seed), ("--from", asked.first)):
        if number is not None and not 0 <= number <= LARGEST_SEED - MOST_SEEDS:
            return f"{option} {number}: give a number from 0 to {LARGEST_SEED - MOST_SEEDS}, such as {option} 1."
    if asked.trace and asked.seed is None:
        return "--trace shows all of one seed: name it, such as --seed 1 --trace."
    if not 1 <= asked.processes <= MOST_PROCESSES:
        return f"--processes {asked.processes}: give a number from 1 to {MOST_PROCESSES}."
    return ""


def _first(asked: argparse.Namespace) -> int:
    return 1 if asked.first is None else int(asked.first)


def _run_seeds(seeds: range, processes: int, *, trace: bool) -> Iterator[SeedReport]:
    """In the order of the seeds."""
    if processes == 1:
        yield from (_run_seed(seed, trace) for seed in seeds)
        return
    with ProcessPoolExecutor(processes, initializer=_begin_work) as pool:
        try:
            yield from _in_order(pool, seeds, processes, trace)
        except BaseException:  # whoever gives up, or closes us, waits for no further seed
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _in_order(pool: ProcessPoolExecutor, seeds: range, processes: int, trace: bool) -> Iterator[SeedReport]:
    """A few are under way at a time, however many there are."""
    under_way: deque[Future[SeedReport]] = deque()
    for seed in seeds:
        under_way.append(pool.submit(_run_seed, seed, trace))
        if len(under_way) >= processes * AHEAD:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _begin_work() -> None:
    """Ctrl-C ends it at once and quietly: the command says what was done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_seed(seed: int, trace: bool) -> SeedReport:
    began = time.process_time()
    outcome = run(seed)
    return _make_report(outcome, time.process_time() - began, trace=trace)


def _make_report(outcome: Outcome, cpu_seconds: float, *, trace: bool) -> SeedReport:
    told = outcome.trace
    lines = tuple(told.last(len(told.lines) if trace else LAST_LINES))
    deaths = tuple(line.what.removeprefix(DIES) for line in told.lines if line.what.startswith(DIES))
    return SeedReport(outcome.seed, outcome.broken, outcome.virtual_seconds, cpu_seconds, told.digest, deaths, lines)


def _print_report(told: SeedReport, *, always: bool) -> None:
    if not told.broken and not always:
        return
    for line in told.lines:
        _print(line)
    _print(f"seed {told.seed}: {told.broken or 'all held'} (trace {told.digest[:16]})")
    if told.broken:
        _print(f"again, with all that happened: crucible-sim --seed {told.seed} --trace")


def _print_progress(line: str) -> None:
    """For whoever watches; the output stays what is counted on."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
