"""Evaluate the analysis: compare it with labels, feed it broken code, and measure its speed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.analysis import baselines
from benchmarks.analysis.bounds import bounds, broken_programs
from benchmarks.analysis.corpus import Label, Part, corpus
from benchmarks.analysis.runs import runs
from benchmarks.analysis.runtimes import report
from benchmarks.analysis.scores import accuracy, macro_f1, percentile
from crucible.analysis import Sources, analyse, gather_sources
from crucible.core.routing.profile import Profile

WITHIN = 0.05
"""Relative error within which a number of parameters counts as correct."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analysis", description=__doc__)
    parser.add_argument("--corpus", type=Path, help="a folder of scripts with labels.csv, or of owner/name")
    parser.add_argument("--part", type=Part, default=Part.ALL, help="of our labels: shown, held, second or all")
    parser.add_argument("--snippets", type=int, default=0, help="so many broken and mangled snippets")
    parser.add_argument("--bounds", action="store_true", help="long and deep programs: time and memory of each")
    parser.add_argument("--speed", type=Path, help="a folder of scripts to time")
    parser.add_argument(
        "--published", action="store_true", help="published runs, and how long each is expected to take"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    if args.corpus is None and not args.snippets and args.speed is None and not args.published and not args.bounds:
        parser.error("nothing to do: name --corpus, --published, --snippets, --bounds or --speed")
    if args.published:
        report(runs(), _say)
    if args.corpus is not None:
        found = corpus(args.corpus, args.part)
        for path in found.changed:
            _say(f"left out, it has changed since it was labelled: {path}")
        evaluate(found.labels, args.corpus)
    if args.speed is not None:
        timed([path.read_bytes() for path in sorted(args.speed.rglob("*.py"))])
    beyond = bounds() if args.bounds else 0
    beyond += broken_programs(args.snippets, args.seed) if args.snippets else 0
    return 1 if beyond else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def evaluate(rows: list[Label], folder: Path) -> None:
    """Print every miss, then the scores with those of the baselines."""
    profiles = [analyse(gather_sources(row.path)) for row in rows]
    for row, profile in zip(rows, profiles, strict=True):
        for miss in misses(row, profile):
            _say(f"miss  {row.path.relative_to(folder)}: {miss}")
    texts = [row.path.read_text(encoding="utf-8", errors="replace") for row in rows]
    true_frameworks, true_gpu = [row.frameworks for row in rows], [row.gpu for row in rows]
    said = [frozenset(profile.frameworks.value or ()) for profile in profiles]
    need = [str(profile.gpu.value) for profile in profiles]
    most = baselines.majority(true_gpu)
    _say(f"{len(rows)} scripts")
    _say(f"frameworks      {accuracy(said, true_frameworks):.3f}")
    _say(f"  import regex  {accuracy([baselines.frameworks(text) for text in texts], true_frameworks):.3f}")
    _say(f"GPU need, macro-F1  {macro_f1(need, true_gpu):.3f}   accuracy {accuracy(need, true_gpu):.3f}")
    _say(f"  import regex      {macro_f1([baselines.gpu(text) for text in texts], true_gpu):.3f}")
    _say(f"  majority ({most})  {macro_f1([most] * len(rows), true_gpu):.3f}")
    counted = [(row, profile) for row, profile in zip(rows, profiles, strict=True) if row.parameters]
    if counted:
        right = sum(_near(profile.parameters.value, row.parameters) for row, profile in counted)
        _say(f"parameters within {WITHIN:.0%}  {right} of {len(counted)}")


def misses(row: Label, profile: Profile) -> list[str]:
    found = []
    said = frozenset(profile.frameworks.value or ())
    if said != row.frameworks:
        found.append(f"frameworks {' '.join(sorted(said)) or '-'}, labelled {' '.join(sorted(row.frameworks)) or '-'}")
    if str(profile.gpu.value) != row.gpu:
        lines = "; ".join(str(line) for line in profile.gpu.evidence[:1]) or "no line"
        found.append(f"gpu {profile.gpu.value}, labelled {row.gpu} ({profile.gpu.why} {lines})")
    if row.parameters and not _near(profile.parameters.value, row.parameters):
        found.append(f"parameters {profile.parameters.value}, labelled {row.parameters}")
    return found


def _near(said: int | None, true: int | None) -> bool:
    return said is not None and true is not None and abs(said - true) <= WITHIN * true


def timed(programs: list[bytes]) -> None:
    """Measure CPU time, so that other work on the machine does not count."""
    seconds = []
    for data in programs:
        begun = time.process_time()
        analyse(Sources({"a.py": data}, "a.py"))
        seconds.append(time.process_time() - begun)
    median, late = percentile(seconds, 0.5), percentile(seconds, 0.95)
    _say(f"{len(programs)} files: median {median * 1e3:.1f} ms, 95th percentile {late * 1e3:.1f} ms of processor time")
