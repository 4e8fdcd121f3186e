"""How long reading takes, in parsings of the same text: that is the same on a busy machine."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable

from benchmarks.analysis.snippets import WHOLE

from crucible.analysis import Sources, analyse

LINES = 2_000
PARSINGS = 10
TRIES = 15


def program() -> str:
    """Classes, functions and calls as people write them, each under a name of its own."""
    parts = [f"def part{n}():" + WHOLE.replace("\n", "\n    ") for n in range(LINES // WHOLE.count("\n") + 1)]
    text = "\n".join([*parts, "part0()", "part1()"])
    return "\n".join(text.split("\n")[:LINES])


def quickest(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(TRIES):
        begun = time.process_time()
        act()
        taken.append(time.process_time() - begun)
    return min(taken)


def test_two_thousand_lines_take_a_few_times_their_parsing() -> None:
    text = program()
    sources = Sources({"a.py": text.encode()}, "a.py")
    parsing, reading = quickest(lambda: ast.parse(text)), quickest(lambda: analyse(sources))
    print(f"{LINES} lines: parsed in {parsing * 1e3:.1f} ms, read in {reading * 1e3:.1f} ms of processor time")
    assert reading < PARSINGS * parsing
