"""What tests write down is put together without adding up what should not be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.prove.figures import Spread, counts, read, sum_of

from crucible.core.errors import Trouble


def written(folder: Path, *lines: dict[str, object]) -> Path:
    path = folder / "figures.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_one_test_measured_something(tmp_path: Path) -> None:
    [found] = read(written(tmp_path, {"row": "kill -9", "test": "t.py::test_it", "kills": 10, "longest": 1.5}))
    assert (found.name, found.times) == ("kill -9", 1)
    assert found.numbers == {"kills": Spread(least=10, most=10), "longest": Spread(least=1.5, most=1.5)}


def test_of_many_the_least_and_the_most_are_kept(tmp_path: Path) -> None:
    lost: dict[str, object] = {"row": "sweep", "lost": 0}
    lines = [{**lost, "test": f"t.py::test_it[{seconds}]", "seconds": seconds} for seconds in (3, 1, 2)]
    [found] = read(written(tmp_path, *lines))
    assert (found.test, found.times) == ("t.py::test_it", 3)
    assert found.numbers == {"lost": Spread(least=0, most=0), "seconds": Spread(least=1, most=3)}


def test_lines_with_other_words_are_told_apart(tmp_path: Path) -> None:
    ways: list[dict[str, object]] = [{"row": "r", "way": way, "on": ["a", "b"], "cuts": 3} for way in "xyx"]
    found = read(written(tmp_path, *ways))
    assert [(each.words, each.times) for each in found] == [
        ({"way": "x", "on": "a, b"}, 2),
        ({"way": "y", "on": "a, b"}, 1),
    ]


def test_what_only_some_measured_is_kept(tmp_path: Path) -> None:
    [found] = read(written(tmp_path, {"row": "r", "a": 1}, {"row": "r", "a": 2, "b": 3}))
    assert found.numbers == {"a": Spread(least=1, most=2), "b": Spread(least=3, most=3)}


def test_tests_are_told_apart(tmp_path: Path) -> None:
    found = read(written(tmp_path, {"row": "r", "test": "a", "n": 1}, {"row": "r", "test": "b", "n": 2}))
    assert [each.numbers["n"].most for each in found] == [1, 2]


def test_each_name_by_itself_in_the_order_they_came(tmp_path: Path) -> None:
    found = read(written(tmp_path, {"row": "b", "n": 1}, {"row": "a", "n": 2}, {"row": "b", "n": 3}))
    assert [(each.name, each.times) for each in found] == [("b", 2), ("a", 1)]


def test_no_file_means_that_nothing_was_measured(tmp_path: Path) -> None:
    assert read(tmp_path / "none.jsonl") == ()


@pytest.mark.parametrize("damage", ['{"row": "r", "ki', "[1]", '{"kills": 3}', ""])
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    path = written(tmp_path, {"row": "r", "kills": 1})
    path.write_text(path.read_text() + damage + "\n")
    with pytest.raises(Trouble, match="Line 2 of the figures"):
        read(path)


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("12 passed in 3.21s", {"passed": 12}),
        ("1 failed, 12 passed, 3 skipped, 2 warnings in 65.00s (0:01:05)", {"failed": 1, "passed": 12, "skipped": 3}),
        ("no tests ran in 0.01s", {}),
        ("200 seeds, 398 virtual hours, 0 broken, 190 s", {"seeds": 200, "virtual hours": 398, "broken": 0}),
        ("", {}),
    ],
)
def test_counts_are_read_from_the_last_line(last: str, found: dict[str, int]) -> None:
    assert {name: number for name, number in counts(f"3 lies, 4 more\n{last}\n\n").items() if name in found} == found


def test_counts_of_several_commands_are_added() -> None:
    assert sum_of([{"passed": 2}, {"passed": 3, "skipped": 1}]) == {"passed": 5, "skipped": 1}
