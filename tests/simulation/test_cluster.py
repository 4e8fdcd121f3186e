"""Test the simulated cluster and the check of the machines in its queue."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.books import Books
from tests.simulation.test_world import environment

from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.provider_queue import ProviderQueueCheck
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.cluster import Cluster, Submission
from crucible.wire.documents.bootstrap import Bootstrap


def queue_of(books: Books, limit: int = 1) -> ProviderQueueCheck:
    faults = FaultRates(RandomStream(1, "weather"), books.loop.time)
    cluster = Cluster(books.loop, environment(books.loop), faults, RandomStream(1, "cluster"))
    return ProviderQueueCheck(books.db, books.truth, cluster, books.clock, limit)


def submit(books: Books, check: ProviderQueueCheck) -> Submission:
    async def call() -> Submission:
        return check.cluster.submit("mch-1", "dep-1", [Bootstrap("mch-1", nonce="nonce")], 600.0)[0]

    return books.loop.run_until_complete(call())


def put(books: Books, name: str = "mch-1", **values: object) -> None:
    row = {"backend": "cluster", "call": "{}", "state": "queued", "native_id": "c-1.0", "owner": f"attempt:{name}"}
    books.put("machines", id=name, **{**row, **values})


def test_a_machine_that_is_submitted_twice_waits_once_and_is_withdrawn_only_before_its_start(books: Books) -> None:
    check = queue_of(books)
    put(books)
    first = submit(books, check)
    assert submit(books, check) is first
    assert check.cluster.withdraw(first.id)
    assert (first.alive, first.cause) == (False, "withdrawn")
    assert check.cluster.withdraw(first.id), "it is gone already"
    books.loop.run_until_complete(asyncio.sleep(20_000))
    assert first.started_at is None


def test_a_machine_that_has_started_is_not_withdrawn_and_ends_after_its_time(books: Books) -> None:
    check = queue_of(books)
    put(books)
    found = submit(books, check)

    async def scene() -> None:
        while found.waits:
            await asyncio.sleep(1)
        assert not check.cluster.withdraw(found.id)
        found.computer.die()
        await asyncio.sleep(610)

    books.loop.run_until_complete(scene())
    assert (found.alive, found.cause) == (False, "time limit")


@pytest.mark.parametrize("clock", ["host_due", "ends_at", "started_at"])
def test_a_clock_that_runs_in_the_queue_is_told(books: Books, clock: str) -> None:
    check = queue_of(books)
    put(books)
    submit(books, check)
    check.check()
    books.change(f"UPDATE machines SET {clock} = 1.0")
    with pytest.raises(InvariantBroken, match="clocks of mch-1 run"):
        check.check()


def test_a_cost_in_the_queue_is_told(books: Books) -> None:
    check = queue_of(books)
    put(books)
    submit(books, check)
    books.put("price_segments", machine="mch-1", n=0, starts_at=0.0, rate=1000)
    with pytest.raises(InvariantBroken, match="costs money"):
        check.check()


def test_a_job_that_is_placed_again_while_its_machine_waits_is_told(books: Books) -> None:
    check = queue_of(books)
    put(books, state="releasing")
    submit(books, check)
    books.put("attempts", id="att-1", job="job-1", number=1, state="ended")
    books.put("slots", attempt="att-1", rank=0, machine="mch-1", ended=True)
    check.check()
    books.put("attempts", id="att-2", job="job-1", number=2, state="launching")
    with pytest.raises(InvariantBroken, match="job-1 was placed again as att-2"):
        check.check()


def test_a_machine_that_is_gone_by_the_books_and_waits_is_told(books: Books) -> None:
    check = queue_of(books)
    put(books, state="gone")
    submit(books, check)
    with pytest.raises(InvariantBroken, match="mch-1 is gone by the books"):
        check.check()


def test_more_machines_than_may_wait_are_told(books: Books) -> None:
    check = queue_of(books)
    put(books)
    check.check()
    put(books, "mch-2")
    with pytest.raises(InvariantBroken, match="2 machines wait for the cluster, 1 may"):
        check.check()


def test_a_claim_after_the_release_is_told(books: Books) -> None:
    check = queue_of(books)
    put(books, state="releasing")
    check.check()
    books.change("UPDATE machines SET claimed_by = 'c-1.0'")
    with pytest.raises(InvariantBroken, match="after it was released"):
        check.check()


def test_a_submission_without_an_intent_and_a_refused_host_are_told(books: Books) -> None:
    check = queue_of(books)
    found = submit(books, check)
    assert books.broken == ["mch-1 is queued before its intent is committed"]
    put(books, state="creating")
    found.started_at = books.loop.time()
    found.computer.on_refused()
    assert books.broken[1:] == ["the host of c-1.0 was refused, and mch-1 is creating"]
