"""Measure the analysis of long, deep and broken programs in forks, and check that it has no side effects."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.analysis.hard import DEEP, HUGE
from benchmarks.analysis.scores import percentile
from benchmarks.analysis.snippets import long_program, snippet
from benchmarks.analysis.whole import whole_program
from crucible.analysis import Sources, analyse
from crucible.analysis.process.child import MiB

SECONDS = 1.0
MEMORY = 256 * MiB
LINES = 2_000
READINGS = 100


@dataclass(frozen=True)
class Taken:
    """CPU seconds, and peak bytes of resident and reserved memory."""

    seconds: float
    resident: int
    address: int

    @property
    def within(self) -> bool:
        return self.seconds < SECONDS and self.resident < MEMORY and self.address < MEMORY

    def __str__(self) -> str:
        return f"{self.seconds:6.3f} s  {self.resident / MiB:4.0f} MiB  {self.address / MiB:4.0f} MiB of addresses"


def taken(code: bytes) -> Taken:
    """Analyse the program in a fork of this process, as a worker does."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, json.dumps(_used(code)).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        used = answer.read()
    os.waitpid(child, 0)
    if not used:
        raise ChildProcessError("the process that analysed it died")
    return Taken(*json.loads(used))


def _used(code: bytes) -> tuple[float, int, int]:
    analyse(Sources({"a.py": code}, "a.py"))
    status = Path("/proc/self/status").read_text()
    resident, address = (
        int(found[1]) * 1024 for name in ("VmHWM", "VmPeak") if (found := re.search(rf"{name}:\s+(\d+) kB", status))
    )
    return time.process_time(), resident, address


def hard_programs() -> int:
    """Print a line for each program; return how many exceeded the bounds."""
    beyond = 0
    for kind, programs in (("huge", HUGE), ("deep", DEEP)):
        for name, code in programs.items():
            used = taken(code.encode())
            beyond += not used.within
            _say(f"{kind} {name:<14} {used}{'' if used.within else '   beyond'}")
    return beyond


def broken_programs(count: int, seed: int) -> int:
    """Analyse broken snippets; return how many crashed, exceeded the bounds or had a side effect."""
    chance = random.Random(seed)  # noqa: S311
    analyse(
        Sources({"a.py": "é = = (\nfor x in".encode()}, "a.py")
    )  # loads the tolerant parser and the table of character names
    slowest, bad = 0.0, 0
    with watched() as done:
        for number in range(count):
            code = snippet(chance).encode()
            begun = time.process_time()
            try:
                analyse(Sources({"a.py": code}, "a.py"))
            except Exception as error:  # noqa: BLE001, any exception is a finding
                bad += 1
                _say(f"crash  snippet {number} of seed {seed}: {type(error).__name__}: {error}")
            spent = time.process_time() - begun
            slowest, bad = max(slowest, spent), bad + (spent >= SECONDS)
    _say(f"{count} snippets: {bad} crashed or were slow, the slowest took {slowest:.2f} s of processor time")
    _say(f"{len(done)} files opened, programs started or texts run: {', '.join(sorted(set(done))) or 'none'}")
    return bad + len(done)


_DEEDS = ("open", "exec", "import", "os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "webbrowser.")

_LOOKS_FOR_THE_LINE = ("open", "<unknown>")
"""Python's parser opens this file, which does not exist, to show the line of an error."""


@contextmanager
def watched() -> Iterator[list[str]]:
    """Record the side effects that Python's audit hook reports."""
    done: list[str] = []
    watching = True

    def hook(event: str, about: tuple[object, ...]) -> None:
        if watching and event.startswith(_DEEDS) and (event, *about[:1]) != _LOOKS_FOR_THE_LINE:
            done.append(event)

    sys.addaudithook(hook)  # an audit hook cannot be removed
    try:
        yield done
    finally:
        watching = False


def long_programs() -> None:
    """Time two programs of 2,000 lines repeatedly."""
    for name, text in (("one program", whole_program(LINES)), ("trainings", long_program(LINES))):
        seconds = [taken(text.encode()).seconds for _ in range(READINGS)]
        late, median = percentile(seconds, 0.95), percentile(seconds, 0.5)
        _say(f"{LINES} lines of {name}: median {median * 1e3:.1f} ms, p95 {late * 1e3:.1f} ms of processor time")


def bounds() -> int:
    _say(f"bounds: {SECONDS:g} s and {MEMORY / MiB:g} MiB a program")
    beyond = hard_programs()
    long_programs()
    return beyond


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
