"""How a conclusion is drawn: which calls it looks at, the lines it shows, what it asks."""

from __future__ import annotations

from tests.analysis.values_of import follow

from crucible.analysis.conclusions.facts import Seen, Settings, number_named
from crucible.analysis.values.facts import Assigned
from crucible.core.routing.profile import Confidence, Evidence

CALLS = """
import one, two
one.first(1)
two.second(2)
one.first(3)
for i in range(100):
    two.third()
"""


def seen(code: str, *arguments: str) -> Seen:
    return Seen(follow(code, *arguments))


def test_calls_by_path_come_in_the_order_of_the_paths() -> None:
    found = seen(CALLS).calls("two.second", "one.first", "three.none")
    assert [(call.path, call.where[1]) for call in found] == [("two.second", 4), ("one.first", 3), ("one.first", 5)]


def test_calls_whose_path_fits_come_as_they_were_seen_and_each_path_is_asked_once() -> None:
    asked: list[str] = []

    def fits(path: str) -> bool:
        asked.append(path)
        return path in ("one.first", "two.second")

    found = seen(CALLS).calls_where(fits)
    assert [call.args for call in found] == [(1,), (2,), (3,)]
    assert sorted(asked) == sorted(set(asked))
    assert seen(CALLS).calls_where(lambda path: False) == []


def test_calls_with_a_keyword_and_calls_that_tell_stand_among_those_whose_path_fits() -> None:
    found = seen("import one\none.x(1)\none.y(2)\none.z(3, k=0)\none.x(4, k=0)\none.y(5)\n")
    rows = found.calls_where(lambda path: path == "one.x", ("k", "none"), lambda call: call.args == (5,))
    assert [call.args for call in rows] == [(1,), (3,), (4,), (5,)]
    assert [call.args for call in found.calls_named("z", "y")] == [(2,), (3,), (5,)]
    assert [call.args for call in found.calls_with("none", "k")] == [(3,), (4,)]


def test_calls_by_the_last_part_of_their_paths_come_as_they_were_seen_each_once() -> None:
    found = seen("import one, two\none.fit(1)\ntwo.fit(2)\none.inner.fit(3)\ntwo.step(4)\none.fit(5)\n")
    assert [call.args for call in found.calls_named("step", "fit", "step", "none")] == [(1,), (2,), (3,), (4,), (5,)]
    assert found.calls_named("none") == []


def test_settings_that_come_later_are_found_too() -> None:
    rows = [Assigned("width", 1, ("a.py", 1))]
    settings = Settings(rows)
    assert settings.called("depth") == ()
    rows += [Assigned("depth", 2, ("a.py", 2)), Assigned("width", 3, ("a.py", 3))]
    assert [each.value for each in settings.called("depth")] == [2]
    assert [each.value for each in settings.called("width")] == [1, 3]


def test_a_conclusion_shows_each_line_once_and_three_at_the_most() -> None:
    said = seen(CALLS).say(1, [("a.py", 3), ("a.py", 3), ("a.py", 4), ("a.py", 5), ("a.py", 7)])
    assert [str(line) for line in said.evidence] == [
        "a.py:3: one.first(1)",
        "a.py:4: two.second(2)",
        "a.py:5: one.first(3)",
    ]
    assert said.confidence is Confidence.HIGH


def test_signs_are_looked_for_as_far_as_they_are_shown() -> None:
    places = iter([("a.py", 3), ("", 0), ("a.py", 4), ("a.py", 3), ("a.py", 5), ("a.py", 7)])
    assert len(seen(CALLS).say(1, places).evidence) == 3
    assert list(places) == [("a.py", 7)]


def test_a_place_that_is_no_line_of_the_program_is_no_evidence() -> None:
    assert seen(CALLS).say(1, [("", 0), ("other.py", 3), ("a.py", 0)]).evidence == ()
    assert seen(CALLS).evidence(("a.py", 999)) == Evidence("a.py", 999, "")


def test_what_is_assumed_says_so_and_what_is_asked_has_no_value() -> None:
    assumed, asked = seen("").assume(32, "Batches of 32."), seen("").ask("How many?", "Nobody knows.")
    assert (assumed.value, assumed.assumed, assumed.confidence) == (32, True, Confidence.LOW)
    assert (asked.known, asked.question, asked.why) == (False, "How many?", "Nobody knows.")


SETTINGS = """
import argparse
from dataclasses import dataclass
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
args = parser.parse_args()

@dataclass
class Config:
    batch: int = 16
    width: int = 5
batch = 64
width = 7
config = Config()
"""


def test_settings_by_name_go_by_the_names_first_and_then_by_where_they_stand() -> None:
    """Once the program was followed, fields of configs count as well; options come before variables."""
    found = [(name, value) for name, value, _ in seen(SETTINGS).named(("width", "batch"))]
    assert found.index(("width", 7)) < found.index(("batch", 8)) < found.index(("batch", 64))


def test_the_command_line_outranks_a_default() -> None:
    named = number_named(seen(SETTINGS, "--batch", "9"), ("batch",))
    assert named is not None
    assert (named[0], named[2]) == (9, "batch")


def test_a_number_that_makes_no_sense_is_passed_over() -> None:
    code = "batch = -3\nbatch = True\nbatch = 'many'\nbatch = 24\nbatch = 10 ** 12\n"
    assert number_named(seen(code), ("batch",)) == (24, ("a.py", 4), "batch")
    assert number_named(seen("batch = 0"), ("batch",)) is None
