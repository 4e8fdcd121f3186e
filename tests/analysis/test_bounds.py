"""What a program may do to what reads it: nothing. It is never run, and reading it ends soon and small."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.analysis.bounds import watched
from benchmarks.analysis.hard import DEEP, HUGE
from benchmarks.analysis.snippets import WHOLE, snippet
from tests.analysis.programs import sources

from crucible.analysis import AnalysisWorker, Limits, Sources, analyse
from crucible.core.errors import BadInput
from crucible.core.routing.profile import Profile
from crucible.core.views.profiles import ProfileView

LIMITS = Limits(cpu_seconds=2.0, wall_seconds=60.0, memory_bytes=256 * 2**20)
"""Of processor time twice what is promised: on a busy machine the same work takes more of it."""

BUSY = 6.0


@pytest.fixture(scope="module")
def worker() -> Iterator[AnalysisWorker]:
    with AnalysisWorker(LIMITS) as made:
        yield made


@pytest.mark.parametrize("code", [*HUGE.values(), *DEEP.values()], ids=[*HUGE, *(f"deep {name}" for name in DEEP)])
def test_huge_and_deep_programs_are_read_in_a_second_and_little_memory(worker: AnalysisWorker, code: str) -> None:
    """The kernel ends a child that takes more; `python -m benchmarks.analysis --bounds` tells how much each takes."""
    profile = worker.profile(sources(code))
    assert profile.frameworks.known, profile.notes


@pytest.mark.parametrize("part", range(6))
def test_broken_and_mangled_snippets_give_a_profile_each(part: int) -> None:
    chance = random.Random(part)
    for number in range(500):
        code = snippet(chance)
        begun = time.process_time()
        profile = analyse(sources(code), steps=20_000)
        assert time.process_time() - begun < BUSY, (part, number, code)
        view = ProfileView.from_profile(profile)
        assert ProfileView.model_validate_json(view.model_dump_json()) == view


def test_reading_opens_starts_and_runs_nothing() -> None:
    analyse(sources("é = = 1"))  # what is loaded once
    with watched() as done:
        for seed in range(30):
            analyse(sources(snippet(random.Random(seed))))
        analyse(sources(CANARY.format(path="/canary")))
    assert done == []


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


def test_nothing_of_a_program_is_ever_run(worker: AnalysisWorker, tmp_path: Path) -> None:
    target, module = tmp_path / "canary", tmp_path / "canary_module.py"
    code = CANARY.format(path=str(target))
    module.write_text(code)
    before = sys.getrecursionlimit()
    profile = analyse(Sources({"a.py": code.encode(), "canary_module.py": code.encode()}, "a.py"))
    assert profile.frameworks.value == ("torch",)
    assert isinstance(worker.profile(sources(code)), Profile)
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


@pytest.mark.parametrize("code", ["for i in range(2 ** 63): pass", "x = list(range(10 ** 30))", "range(-(2 ** 64))"])
def test_ranges_longer_than_python_can_count_are_no_trouble(code: str) -> None:
    assert analyse(sources(code)).frameworks.known
