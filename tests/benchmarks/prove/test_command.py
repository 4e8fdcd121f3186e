"""Rows run one after the other; what they measured is kept, whatever becomes of the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.prove.command import Place, main
from benchmarks.prove.page import END, begin
from benchmarks.prove.results import Result, load
from benchmarks.prove.rows import Command, Row

LONG = 60.0
PASSES = ("python", "-c", "print('3 passed in 0.1s')")
MEASURES = (
    "python",
    "-c",
    "import sys; open(sys.argv[1], 'a').write('{{\"row\": \"kills\", \"kills\": {kills}}}\\n'); print('1 passed')",
    "{figures}",
)
FAILS = ("python", "-c", "import sys; print('1 failed, 2 passed'); sys.exit(3)")
SKIPS = ("python", "-c", "print('4 skipped in 0.1s')")
HALF_A_LINE = ("python", "-c", "import sys; open(sys.argv[1], 'a').write('{{'); print('1 passed')", "{figures}")


def row(name: str, *commands: Command) -> Row:
    return Row(name, f"what {name} is", promises=(1,), asks="{kills} kills", holds="all", commands=commands)


class Bench:
    def __init__(self, root: Path) -> None:
        self.place = Place(root, Path("results.json"), Path("page.md"))
        self.page = root / "page.md"
        self.page.write_text(f"By hand.\n\n{begin('figures')}\n{END}\n{begin('peers')}\n{END}\n")

    def run(self, *rows: Row, words: tuple[str, ...] = ()) -> int:
        return main(words, rows, self.place)

    @property
    def results(self) -> dict[str, Result]:
        return load(self.place.root / self.place.results).rows


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_row_that_holds(bench: Bench) -> None:
    assert bench.run(row("one", PASSES)) == 0
    result = bench.results["one"]
    assert (result.exit_code, result.problem, result.counts, result.scale) == (0, "", {"passed": 3}, "prove")


def test_figures_are_kept_at_the_size_asked_for(bench: Bench) -> None:
    bench.run(row("one", MEASURES))
    bench.run(row("one", MEASURES))
    [measured] = bench.results["one"].figures
    assert (measured.name, measured.times, measured.numbers["kills"].most) == ("kills", 1, 100)


def test_a_row_that_fails_does_not_stop_the_others(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(row("bad", FAILS), row("good", PASSES)) == 1
    assert bench.results["bad"].problem == "exit code 3"
    assert bench.results["good"].problem == ""
    told = capsys.readouterr().out
    assert "FAILED (exit code 3)" in told
    assert "1 failed, 2 passed" in told


@pytest.mark.parametrize("command", [SKIPS, ("python", "-c", "")], ids=["all skipped", "silent"])
def test_a_row_that_did_nothing_has_not_held(bench: Bench, command: Command) -> None:
    assert bench.run(row("one", PASSES, command)) == 1
    assert bench.results["one"].problem == "nothing was run"


def test_a_row_of_which_something_was_skipped_has_not_held(bench: Bench) -> None:
    some = ("python", "-c", "print('2 passed, 1 skipped in 0.1s')")
    assert bench.run(row("one", some)) == 1
    assert bench.results["one"].problem == "1 skipped"


def test_all_commands_of_a_row_count(bench: Bench) -> None:
    assert bench.run(row("one", PASSES, FAILS, PASSES)) == 1
    result = bench.results["one"]
    assert (result.exit_code, result.counts) == (3, {"passed": 8, "failed": 1})


def test_figures_that_cannot_be_read_are_a_failure(bench: Bench) -> None:
    assert bench.run(row("one", HALF_A_LINE)) == 1
    assert "Line 1 of the figures is invalid" in bench.results["one"].problem


def test_running_one_row_replaces_that_row_only(bench: Bench) -> None:
    rows = (row("a", PASSES), row("b", PASSES))
    bench.run(*rows)
    before = bench.results
    assert bench.run(row("a", FAILS), rows[1], words=("a",)) == 1
    assert bench.results["b"] == before["b"]
    assert bench.results["a"].problem == "exit code 3"


def test_a_run_at_another_size_is_kept_elsewhere(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    assert bench.run(row("one", MEASURES), words=("--scale", "kills=1", "--results", str(other))) == 0
    assert load(other).rows["one"].figures[0].numbers["kills"].most == 1
    assert bench.results == {}
    assert "| what |" not in bench.page.read_text()


def test_a_run_at_another_size_is_not_for_the_page(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(row("one", PASSES), words=("--scale", "kills=1")) == 2
    assert "--results FILE" in capsys.readouterr().err
    assert bench.results == {}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("two",), "There is no row 'two'. The rows are: one, three."),
        (("--scale", "cats=3"), "--scale cats=3: test, prove, and numbers of"),
    ],
)
def test_what_is_not_understood(
    bench: Bench, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert bench.run(row("one", PASSES), row("three", PASSES), words=words) == 2
    assert told in capsys.readouterr().err
    assert bench.results == {}


def test_damaged_results_are_told_before_anything_runs(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    (bench.place.root / bench.place.results).write_text("{")
    assert bench.run(row("one", PASSES)) == 1
    told = capsys.readouterr()
    assert "are damaged" in told.err
    assert "== one" not in told.out


def test_the_list_runs_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(row("one", FAILS), words=("--list",)) == 0
    assert "what one is: 100 kills" in capsys.readouterr().out


INTERRUPTED = """\
import sys
from pathlib import Path
from benchmarks.prove.command import Place, main
from benchmarks.prove.rows import Row

def row(name, code):
    return Row(name, name, (1,), "", "", (("python", "-c", code, str(Path.cwd() / "began"), str(Path.cwd() / "tidy")),))

SLOW = '''
import sys, time
try:
    open(sys.argv[1], "w").close()
    time.sleep(600)
except KeyboardInterrupt:
    open(sys.argv[2], "w").close()
'''
rows = (row("quick", "print('1 passed')"), row("slow", SLOW), row("never", "print('1 passed')"))
sys.exit(main([], rows, Place(Path.cwd(), Path("results.json"), None)))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_was_done_and_lets_the_row_tidy_up(tmp_path: Path, number: signal.Signals) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], cwd=tmp_path, env=environ, stdout=subprocess.PIPE)
    try:
        wait_for(tmp_path / "began", process)
        process.send_signal(number)
        told, _ = process.communicate(timeout=LONG)
    finally:
        process.kill()
    assert process.returncode == 130
    assert set(load(tmp_path / "results.json").rows) == {"quick"}
    assert (tmp_path / "tidy").exists()
    assert b"slow         not done: interrupted" in told


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LONG
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
