"""How long reading takes, in parsings of the same text: that is the same on a busy machine."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable

import pytest
from benchmarks.analysis.snippets import long_program

from crucible.analysis import Sources, analyse

LINES = 2_000
PARSINGS = 4
TRIES = 15


def quickest(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(TRIES):
        begun = time.process_time()
        act()
        taken.append(time.process_time() - begun)
    return min(taken)


@pytest.mark.quiet
def test_two_thousand_lines_take_a_few_times_their_parsing() -> None:
    text = long_program(LINES)
    sources = Sources({"a.py": text.encode()}, "a.py")
    parsing, reading = quickest(lambda: ast.parse(text)), quickest(lambda: analyse(sources))
    print(f"{LINES} lines: parsed in {parsing * 1e3:.1f} ms, read in {reading * 1e3:.1f} ms of processor time")
    assert reading < PARSINGS * parsing
