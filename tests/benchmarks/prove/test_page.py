"""docs/reliability.md says what the rows and the results say, and names tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from benchmarks.prove.command import PAGE, RESULTS, ROOT
from benchmarks.prove.environment import Source
from benchmarks.prove.figures import Measured, Spread
from benchmarks.prove.page import END, begin, rendered
from benchmarks.prove.peers import PEERS, planted
from benchmarks.prove.results import Result, Results, load
from benchmarks.prove.rows import MISSING, ROWS
from tests.benchmarks.prove.sample import RESULT
from tests.scale import TEST
from tests.simulation import planted as all_planted

from crucible.core.errors import Trouble

TEXT = (ROOT / PAGE).read_text()
BY_HAND = re.sub(f"{begin('[a-z]+')}.*?{END}", "", TEXT, flags=re.DOTALL)
FIGURES, PEERS_TABLE = begin("figures"), begin("peers")
EMPTY = f"Before.\n{FIGURES}\nstale\n{END}\nBetween.\n{PEERS_TABLE}\nstale\n{END}\nAfter.\n"
LINK = re.compile(r"\]\(([^)#:]+)\)")
TEST_NAME = re.compile(r"`(test_\w+)`")


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def shown(results: Results, bugs: Mapping[str, tuple[str, ...]] | None = None) -> str:
    return rendered(EMPTY, results, bugs or {})


def cells(page: str, name: str) -> list[str]:
    [line] = [line for line in page.splitlines() if f"(`{name}`)" in line]
    return line.strip("| ").split(" | ")


def measured(result: Result) -> str:
    return cells(shown(Results(rows={"kill9": result})), "kill9")[-1]


def test_the_page_is_up_to_date() -> None:
    """`python -m benchmarks.prove --render` makes it so."""
    assert rendered(TEXT, load(ROOT / RESULTS), planted(ROOT)) == TEXT


def test_the_results_are_of_rows_that_there_are_and_say_nothing_of_who_ran_them() -> None:
    kept = load(ROOT / RESULTS)
    assert kept.rows.keys() <= {row.name for row in ROWS}
    assert not re.search(r"/(home|root|tmp|work|Users|var)\b", kept.model_dump_json())


@pytest.mark.parametrize("test", sorted({test for row in (*ROWS, *MISSING, *PEERS) for test in row.tests}))
def test_what_a_row_names_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).exists()
    assert not name or name in names_in(ROOT / path)


@pytest.mark.parametrize("page", [PAGE, Path("README.md")], ids=str)
def test_links_lead_to_files_and_the_tests_named_are_in_them(page: Path) -> None:
    folder = (ROOT / page).parent
    for line in (ROOT / page).read_text().splitlines():
        linked = [folder / target for target in LINK.findall(line)]
        assert [path for path in linked if not path.exists()] == []
        there = {name for path in linked if path.suffix == ".py" for name in names_in(path)}
        assert set(TEST_NAME.findall(line)) <= there


def test_the_planted_bugs_read_are_those_that_are_planted() -> None:
    there: dict[str, tuple[str, ...]] = {}
    for bug in all_planted.ALL:
        there[bug.seen] = (*there.get(bug.seen, ()), bug.name)
    assert planted(ROOT) == there


def test_every_planted_bug_is_on_the_page_once() -> None:
    assert [name for names in planted(ROOT).values() for name in names if TEXT.count(f"*{name}*") != 1] == []


def test_every_failure_in_a_lifecycle_has_a_planted_bug() -> None:
    assert {peer.seen for peer in PEERS if "#" in peer.seen} <= planted(ROOT).keys()


def test_every_promise_has_its_tests() -> None:
    parts = re.split(r"^### \d\. ", BY_HAND.partition("## Figures")[0], flags=re.MULTILINE)[1:]
    assert len(parts) == 7
    assert all("](../tests/" in part for part in parts)


def test_rows_speak_of_promises_that_are_on_the_page() -> None:
    numbers = {int(number) for number in re.findall(r"^### (\d)\. ", BY_HAND, flags=re.MULTILINE)}
    assert {number for row in (*ROWS, *MISSING) for number in row.promises} <= numbers


def test_no_figure_is_typed_by_hand() -> None:
    text = re.sub(r"```.*?```|`[^`]*`|\[[^]]*\]\([^)]*\)", "", BY_HAND, flags=re.DOTALL)
    text = re.sub(r"[a-z]*#\d+|CVE-\d+-\d+|^### \d\.|promise \d", "", text, flags=re.MULTILINE)
    assert re.findall(r".*\d.*", text) == []


def test_make_test_runs_as_many_seeds_as_the_page_says() -> None:
    found = re.findall(r"crucible-sim\S* .*--seeds (\d+)", (ROOT / "scripts/test.sh").read_text())
    assert found == [str(TEST.seeds)]


def test_only_what_is_between_the_marks_is_written() -> None:
    page = shown(Results())
    assert re.findall(r"^(?:Before|Between|After)\.$", page, flags=re.MULTILINE) == ["Before.", "Between.", "After."]
    assert "stale" not in page
    assert rendered(page, Results(), {}) == page


@pytest.mark.parametrize(
    ("page", "name"),
    [("", "figures"), (FIGURES, "figures"), (f"{END} {FIGURES}", "figures"), (f"{FIGURES} {END}", "peers")],
)
def test_a_page_without_the_marks_is_refused(page: str, name: str) -> None:
    with pytest.raises(Trouble, match=f"no part for the {name}"):
        rendered(page, Results(), {})


def test_a_failure_is_shown_with_its_planted_bugs_and_its_tests() -> None:
    [line] = [line for line in shown(Results(), {"dstack#2637": ("a", "b")}).splitlines() if "dstack#2637" in line]
    assert "| planted: *a*, *b*; [test_agents.py](../tests/control/agents/test_agents.py) `test_of_two_hosts" in line


def test_bugs_that_no_peer_had_are_told_too() -> None:
    assert "Also planted: *a* (promise 1); *b*, *c* (promise 6)." in shown(
        Results(), {"promise 6": ("b", "c"), "promise 1": ("a",)}
    )


def test_a_row_that_was_never_run_says_so() -> None:
    page = shown(Results())
    assert all(cells(page, row.name)[-1] == "not yet run" for row in ROWS)


def test_a_row_says_what_is_asked() -> None:
    _, promises, small, large, holds, _ = cells(shown(Results()), "kill9")
    assert promises == "1, 2, 6"
    assert small.startswith("10 kills, at least 500 acknowledged: [test_kill9.py]")
    assert large == "100 kills, at least 50,000 acknowledged"
    assert holds == "no job lost, none run twice"


def test_what_was_measured_is_told_with_its_commit_and_date() -> None:
    told = {"seed": (7, 8), "acknowledged": (50213, 50213), "ready_seconds": (1.0, 2.345)}
    spread = {name: Spread(least=least, most=most) for name, (least, most) in told.items()}
    figures = (Measured(name="kills", test="t", times=3, numbers=spread, words={"store": "a|b"}),)
    assert measured(RESULT.model_copy(update={"figures": figures})) == (
        "held: store a&#124;b, 3 times: acknowledged 50,213, ready seconds 1 to 2.35; 1 passed. "
        "`0123456789`, 2026-11-16, in 1m 01s"
    )


def test_names_are_told_where_a_row_measured_several_things() -> None:
    numbers = {"n": Spread(least=2, most=2)}
    both = tuple(Measured(name=name, test="t", times=1, numbers=numbers, words={}) for name in "ab")
    assert measured(RESULT.model_copy(update={"figures": both})).startswith("held: a: n 2; b: n 2; 1 passed.")
    assert measured(RESULT.model_copy(update={"figures": both[:1]})).startswith("held: n 2; 1 passed.")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"problem": "exit code 1"}, "**failed** (exit code 1): 1 passed."),
        ({"scale": "kills=1"}, "held at kills=1: 1 passed."),
        ({"source": Source(commit="0123456789abcdef", clean=False)}, "`0123456789` with changes, 2026"),
        ({"source": Source(commit=None, clean=False)}, "no commit, 2026"),
    ],
)
def test_what_is_less_than_it_should_be_is_said(change: dict[str, object], told: str) -> None:
    assert told in measured(RESULT.model_copy(update=change))


def test_machines_are_told_apart_where_there_are_several() -> None:
    other = RESULT.model_copy(update={"machine": RESULT.machine.model_copy(update={"cores": 8})})
    one = shown(Results(rows={"kill9": RESULT, "postgres": RESULT}))
    assert "Measured on 2 cores, 7.8 GiB, Python 3.12.1, Linux 6.1 x86_64.\n" in one
    assert "x86_64: postgres.\n" in shown(Results(rows={"kill9": RESULT, "postgres": other}))
