from __future__ import annotations

import typing
from pathlib import Path

from tests.core.lifecycle.page import ATTEMPT_WORDS, COMMAND, FACT_WORDS, JOB_WORDS, MACHINE_WORDS, page

from crucible.core.lifecycle import AttemptState, JobState, MachineState
from crucible.core.lifecycle import facts as f

PAGE = Path(__file__).parents[3] / "docs" / "lifecycle.md"


def test_the_page_says_what_the_table_says() -> None:
    assert PAGE.read_text("utf-8") == page(), f"docs/lifecycle.md is not what the table says. To fix it: {COMMAND}"


def test_every_state_and_every_fact_has_words() -> None:
    assert set(FACT_WORDS) == {*typing.get_args(f.Fact), *typing.get_args(f.MachineFact)}
    assert (set(JOB_WORDS), set(ATTEMPT_WORDS)) == (set(JobState), set(AttemptState))
    assert set(MACHINE_WORDS) == set(MachineState)


def test_every_pair_of_a_state_and_a_fact_is_on_the_page() -> None:
    """By a row, or by name among what nothing follows from."""
    parts = page().split("\n### ")[1:]
    assert len(parts) == len(JobState) + len(AttemptState) + 1 + len(MachineState)
    for part in parts:
        title, _, text = part.partition("\n")
        facts = typing.get_args(f.MachineFact if "machine" in title else f.Fact)
        assert "Nothing follows from anything." in text or all(fact.__name__ in text for fact in facts), title
