"""The command `crucible-sim`: run seeds, print what broke and how to reproduce it, then a summary."""

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
from crucible.simulation.faults.run import RunOutcome, run
from crucible.simulation.faults.world.process import DIES

SEEDS = 200
LAST_LINES = 40
PROGRESS_EVERY = 50
ENDED_EARLY = 130
QUEUED_PER_PROCESS = 4
MAX_SEEDS = 10_000_000
MAX_PROCESSES = 256
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SeedReport:
    """The result of one seed, in a form that can be sent between processes."""

    seed: int
    broken: str
    virtual_seconds: float
    cpu_seconds: float
    digest: str
    deaths: tuple[str, ...]
    """The points at which its control planes died."""
    lines: tuple[str, ...]


@dataclass
class RunTotals:
    """The summary of a command, printed also after Ctrl-C."""

    requested: int
    began: float
    ran: int = 0
    broken: int = 0
    hours: float = 0.0
    cpu_seconds: float = 0.0
    deaths: Counter[str] = field(default_factory=Counter)

    def add(self, report: SeedReport) -> None:
        self.ran += 1
        self.broken += bool(report.broken)
        self.hours += report.virtual_seconds / 3600
        self.cpu_seconds += report.cpu_seconds
        self.deaths.update(report.deaths)

    def __str__(self) -> str:
        seeds = f"{self.ran} seed{'' if self.ran == 1 else 's'}"
        of = "" if self.ran == self.requested else f" of {self.requested}"
        took = f"{time.monotonic() - self.began:.0f} s, {self.cpu_seconds / max(self.ran, 1):.2f} s of processor a seed"
        return f"{seeds}{of}, {self.hours:.0f} virtual hours, {self.broken} broken, {took}"

    @property
    def where_it_died(self) -> str:
        named = {name: self.deaths[name] for name in sorted(NAMES)}
        never = [name for name, times in named.items() if not times]
        missed = f", never at {', '.join(never)}" if never else ""
        points = f"{len(named) - len(never)} of {len(named)} named points"
        return f"the control plane died {self.deaths.total()} times, at {points}{missed}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Return 1 if an invariant broke, 130 if it was interrupted. Exits with 2 for bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    mistake = _find_mistake(args)
    if mistake:
        parser.error(mistake)
    try:
        return _run_command(args)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ENDED_EARLY


def _run_command(args: argparse.Namespace) -> int:
    count = 1 if args.seed is not None else args.seeds or SEEDS
    first = args.seed if args.seed is not None else 1 if args.first is None else args.first
    counts = RunTotals(count, time.monotonic())
    if count > 1:
        _print_progress(f"{count} seeds from {first}, {min(args.processes, count)} at a time, about a second each.")
    ended = _run_all(range(first, first + count), args, counts)
    if count > 1:
        _print(counts.where_it_died)
    _print(str(counts))
    if counts.broken:
        return 1
    return 0 if ended else ENDED_EARLY


def _run_all(seeds: range, args: argparse.Namespace, counts: RunTotals) -> bool:
    """Run the seeds and add them to `counts`. Return False if Ctrl-C ended them early."""
    try:
        for report in _run_seeds(seeds, min(args.processes, len(seeds)), trace=args.trace):
            counts.add(report)
            _print_report(report, always=args.seed is not None)
            if counts.ran % PROGRESS_EVERY == 0 and counts.ran < counts.requested:
                _print_progress(f"{counts.ran} of {counts.requested}, {counts.broken} broken")
    except KeyboardInterrupt:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="crucible-sim", description="The control plane under seeded faults.")
    parser.add_argument("--seed", type=int, metavar="N", help="run this seed and show its last lines")
    parser.add_argument("--seeds", type=int, metavar="COUNT", help=f"number of seeds (default: {SEEDS})")
    parser.add_argument("--from", type=int, dest="first", metavar="N", help="first seed (default: 1)")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--processes", type=int, default=cores, metavar="N", help=f"parallel processes (default: {cores})"
    )
    parser.add_argument("--trace", action="store_true", help="show the whole trace, not only its last lines")
    return parser


def _find_mistake(args: argparse.Namespace) -> str:
    """Return what is wrong with the arguments and what to type instead; empty if they are valid."""
    if args.seed is not None and (args.seeds is not None or args.first is not None):
        return "--seed runs one seed: leave out --seeds and --from, or --seed."
    seeds = SEEDS if args.seeds is None else args.seeds
    if not 1 <= seeds <= MAX_SEEDS:
        return f"--seeds {seeds}: give a count from 1 to {MAX_SEEDS:,}, such as --seeds {SEEDS}."
    for option, number in (("--seed", args.seed), ("--from", args.first)):
        if number is not None and not 0 <= number <= MAX_SEED - MAX_SEEDS:
            return f"{option} {number}: give a number from 0 to {MAX_SEED - MAX_SEEDS}, such as {option} 1."
    if args.trace and args.seed is None:
        return "--trace shows all of one seed: name it, such as --seed 1 --trace."
    if not 1 <= args.processes <= MAX_PROCESSES:
        return f"--processes {args.processes}: give a number from 1 to {MAX_PROCESSES}."
    return ""


def _run_seeds(seeds: range, processes: int, *, trace: bool) -> Iterator[SeedReport]:
    """Yield a report for each seed, in order."""
    if processes == 1:
        yield from (_run_seed(seed, trace) for seed in seeds)
        return
    with ProcessPoolExecutor(processes, initializer=_begin_work) as pool:
        try:
            yield from _in_order(pool, seeds, processes, trace)
        except BaseException:  # Ctrl-C and a closed generator wait for no further seed
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _in_order(pool: ProcessPoolExecutor, seeds: range, processes: int, trace: bool) -> Iterator[SeedReport]:
    """Yield the reports in order, with a bounded number of seeds queued at a time."""
    pending: deque[Future[SeedReport]] = deque()
    for seed in seeds:
        pending.append(pool.submit(_run_seed, seed, trace))
        if len(pending) >= processes * QUEUED_PER_PROCESS:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _begin_work() -> None:
    """Let Ctrl-C end a worker at once, without a traceback: the command prints the summary."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_seed(seed: int, trace: bool) -> SeedReport:
    began = time.process_time()
    outcome = run(seed)
    return _make_report(outcome, time.process_time() - began, trace=trace)


def _make_report(outcome: RunOutcome, cpu_seconds: float, *, trace: bool) -> SeedReport:
    lines = tuple(outcome.trace.last(len(outcome.trace.lines) if trace else LAST_LINES))
    deaths = tuple(line.what.removeprefix(DIES) for line in outcome.trace.lines if line.what.startswith(DIES))
    return SeedReport(outcome.seed, outcome.broken, outcome.virtual_seconds, cpu_seconds, outcome.digest, deaths, lines)


def _print_report(report: SeedReport, *, always: bool) -> None:
    if not report.broken and not always:
        return
    for line in report.lines:
        _print(line)
    _print(f"seed {report.seed}: {report.broken or 'all held'} (trace {report.digest[:16]})")
    if report.broken:
        _print(f"again, with all that happened: crucible-sim --seed {report.seed} --trace")


def _print_progress(line: str) -> None:
    """Print to stderr, so that stdout holds only reports and the summary."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
