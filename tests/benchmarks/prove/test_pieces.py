"""A long row goes on where it was interrupted, as long as the source is the same."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks.prove.batches import pieces, together
from benchmarks.prove.environment import Source
from benchmarks.prove.figures import Measured, Spread
from benchmarks.prove.results import Result
from benchmarks.prove.rows import ROWS, Command, Row
from benchmarks.prove.runner import Runner
from tests.benchmarks.prove.sample import RESULT

COUNTS = (
    "python",
    "-c",
    "import sys; open('.cache/ran', 'a').write('{first}:{seeds} '); print('{seeds} seeds, 0 broken, 1 s')",
)
"""Seeds; one file says which were run."""
STOPS_ONCE = (
    "python",
    "-c",
    "import os, sys; at = '.cache/stop'; print('1 passed');"
    "stop = {first} == 5 and os.path.exists(at); stop and os.unlink(at); sys.exit(9 if stop else 0)",
)


def cut(*commands: Command, size: int = 2) -> Row:
    return Row("cut", "cut", (1,), asks="", holds="", commands=commands, piece=("seeds", size))


@dataclass
class Repository:
    root: Path
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.git("init", "-q")
        (self.root / ".gitignore").write_text(".cache\n")
        self.commit("first")

    def git(self, *words: str) -> None:
        named = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *named, *words], cwd=self.root, check=True)

    def commit(self, text: str) -> None:
        (self.root / "source").write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", text)

    def run(self, row: Row, scale: str = "seeds=5") -> Result:
        return Runner(self.root, self.root / ".cache", scale, self.said.append).run(row)

    def ran(self) -> list[str]:
        path = self.root / ".cache" / "ran"
        found = path.read_text().split()
        path.unlink()
        return found

    def stop_at_the_last(self) -> None:
        (self.root / ".cache").mkdir(exist_ok=True)
        (self.root / ".cache" / "stop").touch()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_the_whole_is_covered_once(repository: Repository) -> None:
    result = repository.run(cut(COUNTS))
    assert repository.ran() == ["1:2", "3:2", "5:1"]
    assert (result.counts["seeds"], result.scale, result.problem, result.source.clean) == (5, "seeds=5", "", True)
    assert repository.said == ["-- piece 1 of 3", "-- piece 2 of 3", "-- piece 3 of 3"]


def test_what_did_not_hold_makes_the_row_fail_and_the_others_are_run(repository: Repository) -> None:
    repository.stop_at_the_last()
    result = repository.run(cut(COUNTS, STOPS_ONCE))
    assert (result.exit_code, result.problem) == (9, "exit code 9")
    assert repository.ran() == ["1:2", "3:2", "5:1"]


class Interrupted(Runner):
    """Ctrl-C comes at the third piece."""

    def _perform(self, row, piece, number, command):  # type: ignore[no-untyped-def]
        if piece.number == 3:
            raise KeyboardInterrupt
        return super()._perform(row, piece, number, command)


def interrupt(repository: Repository) -> None:
    with pytest.raises(KeyboardInterrupt):
        Interrupted(repository.root, repository.root / ".cache", "seeds=5", repository.said.append).run(cut(COUNTS))
    assert repository.ran() == ["1:2", "3:2"]


def test_an_interrupted_row_goes_on_where_it_was(repository: Repository) -> None:
    interrupt(repository)
    result = repository.run(cut(COUNTS))
    assert repository.ran() == ["5:1"]
    assert result.counts["seeds"] == 5
    assert repository.said[-3:] == ["-- piece 1 of 3: done before", "-- piece 2 of 3: done before", "-- piece 3 of 3"]


def test_a_row_that_was_finished_is_run_anew(repository: Repository) -> None:
    repository.run(cut(COUNTS))
    repository.run(cut(COUNTS))
    assert repository.ran() == ["1:2", "3:2", "5:1"] * 2


def test_pieces_of_another_commit_do_not_count(repository: Repository) -> None:
    interrupt(repository)
    repository.commit("second")
    repository.run(cut(COUNTS))
    assert repository.ran() == ["1:2", "3:2", "5:1"]


def test_pieces_of_a_changed_tree_do_not_count(repository: Repository) -> None:
    (repository.root / "source").write_text("changed")
    interrupt(repository)
    result = repository.run(cut(COUNTS))
    assert repository.ran() == ["1:2", "3:2", "5:1"]
    assert not result.source.clean


def test_pieces_of_another_size_do_not_count(repository: Repository) -> None:
    interrupt(repository)
    repository.run(cut(COUNTS), scale="seeds=3")
    assert repository.ran() == ["1:2", "3:1"]


def test_a_damaged_piece_is_run_again(repository: Repository) -> None:
    interrupt(repository)
    (repository.root / ".cache" / "cut-piece-1.json").write_text("{")
    repository.run(cut(COUNTS))
    assert repository.ran() == ["1:2", "5:1"]


def measured(least: int, most: int, **words: str) -> Measured:
    return Measured(name="cuts", test="t", times=1, numbers={"cuts": Spread(least=least, most=most)}, words=words)


def test_figures_of_pieces_are_told_together() -> None:
    one = RESULT.model_copy(update={"figures": (measured(3, 5), measured(1, 1, way="store"))})
    two = RESULT.model_copy(update={"figures": (measured(4, 9),)})
    whole = together([one, two], "prove")
    assert [(each.times, each.numbers["cuts"]) for each in whole.figures] == [
        (2, Spread(least=3, most=9)),
        (1, Spread(least=1, most=1)),
    ]
    assert (whole.seconds, whole.counts) == (122.0, {"passed": 2})


def test_pieces_of_several_commits_are_not_clean() -> None:
    other = RESULT.model_copy(update={"source": Source(commit="fedcba", clean=True)})
    assert not together([RESULT, other], "prove").source.clean


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_can_be_cut(row: Row) -> None:
    found = pieces(row, "prove")
    assert [piece.number for piece in found] == list(range(1, len(found) + 1))
    assert all(piece.of == len(found) for piece in found)
