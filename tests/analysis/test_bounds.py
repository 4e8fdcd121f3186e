"""What a program may do to its reader: nothing. It is never run, and reading it ends soon and small."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.analysis.hard import DEEP, HUGE
from benchmarks.analysis.snippets import WHOLE, snippet

from crucible.analysis import Sources, analyse, analyse_within
from crucible.core.errors import BadInput
from crucible.core.profile import Profile

SECONDS = 1.0
MEMORY = 256 * 2**20
BUSY = 6.0
"""Other work on this machine may take the processor for a while; what counts is our own use of it."""


def sources(code: str | bytes, name: str = "a.py") -> Sources:
    return Sources({name: code if isinstance(code, bytes) else code.encode()}, name)


MEASURED = """
import re, sys, time
from crucible.analysis import Sources, analyse
before = time.process_time()
analyse(Sources({"a.py": sys.stdin.buffer.read()}, "a.py"))
spent = time.process_time() - before
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(spent, int(peak[1]) * 1024)  # getrusage tells the peak of whoever started it, too
"""


@pytest.mark.parametrize("code", [*HUGE.values(), *DEEP.values()], ids=[*HUGE, *(f"deep {name}" for name in DEEP)])
def test_huge_and_deep_programs_are_read_in_a_second_and_little_memory(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], input=code.encode(), capture_output=True, check=True, timeout=60
    )
    seconds, memory = (float(each) for each in done.stdout.split())
    assert seconds < SECONDS * 2  # processor time of a machine that is shared
    assert memory < MEMORY


@pytest.mark.parametrize("part", range(6))
def test_broken_and_mangled_snippets_give_a_profile_each(part: int) -> None:
    chance = random.Random(part)
    for number in range(500):
        code = snippet(chance)
        begun = time.process_time()
        profile = analyse(sources(code), steps=20_000)
        assert time.process_time() - begun < BUSY, (part, number, code)
        assert profile.as_json()["notes"] is not None


CANARY = """
import os, sys, subprocess, pathlib, torch
target = {path!r}
pathlib.Path(target).write_text("ran")
open(target, "w").write("ran")
os.system("touch " + target)
subprocess.run(["touch", target])
exec("open(target, 'w').write('ran')")
eval("open(target, 'w')")
__import__("os").system("touch " + target)
class A:
    def __init_subclass__(cls): open(target, "w")
    def __getattr__(self, name): open(target, "w")
    def __del__(self): open(target, "w")
class B(A): pass
A().x
@(lambda f: open(target, "w"))
def f(a=open(target, "w")): pass
x: open(target, "w") = 1
assert open(target, "w")
f"{{open(target, 'w')}}"
import canary_module
sys.modules["json"] = 3
sys.setrecursionlimit(5)
sys.exit(3)
"""


def test_nothing_of_a_program_is_ever_run(tmp_path: Path) -> None:
    target, module = tmp_path / "canary", tmp_path / "canary_module.py"
    code = CANARY.format(path=str(target))
    module.write_text(code)
    before = sys.getrecursionlimit()
    profile = analyse(Sources({"a.py": code.encode(), "canary_module.py": code.encode()}, "a.py"))
    assert profile.frameworks.value == ("torch",)
    assert isinstance(analyse_within(sources(code)), Profile)
    assert not target.exists()
    assert "canary_module" not in sys.modules
    assert sys.getrecursionlimit() == before


def test_the_same_program_gives_the_same_profile() -> None:
    assert analyse(sources(WHOLE)) == analyse(sources(WHOLE))


def test_an_entry_that_is_not_there_is_an_error_of_the_caller() -> None:
    with pytest.raises(BadInput, match="not among the files"):
        analyse(Sources({"b.py": b""}, "a.py"))


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"\xff" * 1000, bytes(range(256)) * 10])
def test_empty_and_binary_files_give_a_profile_that_says_so(data: bytes) -> None:
    profile = analyse(sources(data))
    assert profile.notes
    assert profile.frameworks.value == ()
