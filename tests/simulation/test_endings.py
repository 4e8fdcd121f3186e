"""Test the checks of terminations, time limits and running programs."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.simulation.books import Books, checkers, instance, make

from crucible.simulation.faults.checks.checkers import LIMIT_SECONDS
from crucible.simulation.faults.checks.endings import TerminationCheck
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.placement import PlacementCheck
from crucible.simulation.faults.ground_truth import RunningProgram
from crucible.simulation.faults.world.cloud import Instance
from crucible.simulation.faults.world.program import Script, SimulatedProgram

DATA = b"one line\n"
SHA = hashlib.sha256(DATA).hexdigest()


def ended(books: Books, found: Instance) -> str:
    """Return what is reported when the cloud is asked to terminate it, without doing so."""
    before = len(books.broken)
    TerminationCheck(books.db, books.truth, books.clock).check_instance(found)
    return " ".join(books.broken[before:])


def runs(books: Books, found: Instance, attempt: str) -> None:
    running = RunningProgram("job-1", attempt, found.id, 0)
    made = SimulatedProgram(running, Script(10, 10.0, 5), books.truth, lambda step: None, lambda how: None)
    found.computer.programs[attempt, 0] = made


def test_a_machine_that_is_wanted_is_not_ended(books: Books) -> None:
    found = instance(books, "mch-1")
    assert "no row knows" in ended(books, found)
    books.put("machines", id="mch-1", backend="cloud", call="{}", state="up")
    assert "while mch-1 is up" in ended(books, found)
    books.change("UPDATE machines SET claimed_by = 'i-9'")
    assert ended(books, found) == "", "another one has proven to be it"
    books.change("UPDATE machines SET claimed_by = NULL, state = 'releasing'")
    assert ended(books, found) == ""


def test_a_program_that_is_wanted_is_not_ended_with_its_machine(books: Books) -> None:
    found = instance(books, "mch-1")
    books.put("machines", id="mch-1", backend="cloud", call="{}", state="releasing", ends_at=books.clock.now() + 60)
    books.put("jobs", id="job-1", state="running", desired="run", spec="{}")
    books.put("attempts", id="att-1", job="job-1", state="running")
    assert ended(books, found) == "", "nothing runs there"
    runs(books, found, "att-1")
    assert "which is wanted" in ended(books, found)
    books.change("UPDATE attempts SET stopping_since = 1.0")
    assert ended(books, found) == "", "it was asked to stop"
    books.change("UPDATE attempts SET stopping_since = NULL")
    books.change("UPDATE machines SET ends_at = 0")
    assert ended(books, found) == "", "its time is over"
    books.change("UPDATE machines SET ends_at = NULL")
    books.change("UPDATE jobs SET desired = 'cancel'")
    assert ended(books, found) == ""


def test_an_instance_without_the_end_that_its_row_says_is_told(books: Books) -> None:
    checkers(books)
    books.put("machines", id="mch-1", backend="cloud", call="{}", ends_at=1000.0)
    make(books, "mch-1", ends_at=None)
    assert "is made to end at None" in books.broken.pop()
    books.cloud.honours_tokens = False
    make(books, "mch-1", ends_at=2000.0)
    assert "its row says 1000.0" in books.broken.pop()
    make(books, "mch-1", ends_at=1000.0)
    assert books.broken == []


def test_a_program_beyond_its_limit_is_told(books: Books) -> None:
    found, here = instance(books, "mch-1"), checkers(books)
    books.truth.started(RunningProgram("job-1", "att-1", found.id, 0, due=books.loop.time()))
    here.check(None)
    books.loop.run_until_complete(asyncio.sleep(LIMIT_SECONDS + 1))
    with pytest.raises(InvariantBroken, match="beyond its limit"):
        here.check(None)


@pytest.mark.parametrize(
    ("attempt", "job", "told"),
    [("ended", "running", "has ended by the books"), ("running", "cancelled", "is cancelled, and its program runs")],
)
def test_a_program_that_is_over_by_the_books_is_told(books: Books, attempt: str, job: str, told: str) -> None:
    found = checkers(books)
    books.truth.started(RunningProgram("job-1", "att-1", "i-1", 0))
    with pytest.raises(InvariantBroken, match="has no row"):
        found.check_commit()
    books.put("attempts", id="att-1", job="job-1", state=attempt)
    books.put("jobs", id="job-1", state=job, desired="run", spec="{}")
    with pytest.raises(InvariantBroken, match=told):
        found.check_commit()


def test_two_programs_of_a_job_and_one_that_starts_again_are_told(books: Books) -> None:
    first = RunningProgram("job-1", "att-1", "i-1", 0)
    books.truth.started(first)
    books.truth.started(RunningProgram("job-1", "att-2", "i-2", 0))
    assert "two programs of job-1" in books.broken.pop()
    books.truth.ended(first)
    books.truth.live.clear()
    books.truth.started(first)
    assert books.broken == ["the program of att-1 was started twice"]


def test_a_machine_with_more_than_it_holds_is_told(books: Books) -> None:
    choices = PlacementCheck(books.db, books.cloud, books.clock)
    books.put("machines", id="mch-1", backend="local", call="{}", capacity='{"cpus": 2.0, "memory_bytes": 100}')
    for n in (1, 2, 3):
        if n == 3:
            choices.check()
        books.put("attempts", id=f"att-{n}", job=f"job-{n}", number=1, generation=1, state="running", backend="local")
        size = '{"cpus": 1.0, "memory_bytes": 10}'
        books.put("slots", attempt=f"att-{n}", rank=0, machine="mch-1", ended=False, allocation=size)
    with pytest.raises(InvariantBroken, match="no room for all of its 3 tries"):
        choices.check()
