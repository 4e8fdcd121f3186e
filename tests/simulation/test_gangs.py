"""Test jobs on several machines in the simulated world, and the checks of them."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.simulation.books import Books, checkers
from tests.simulation.test_world import environment

from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.gangs import LATE_SECONDS, GangCheck
from crucible.simulation.faults.checks.stored_objects import StoredObjectsCheck
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import OutputSegment, RunningProgram
from crucible.simulation.faults.world.cluster import Cluster
from crucible.storage.layout import log_segment_key
from crucible.wire.documents.bootstrap import Bootstrap

DATA = b"one line\n"
SHA = hashlib.sha256(DATA).hexdigest()


def gang(books: Books, *machines: str, nodes: int = 2, **slot: object) -> GangCheck:
    """Put a gang into the books. `slot`: columns of its first rank."""
    books.put("jobs", id="job-1", state="running", desired="run", spec=f'{{"nodes": {nodes}, "name": "a"}}')
    books.put("attempts", id="att-1", job="job-1", number=1, state="running")
    for rank, machine in enumerate(machines):
        books.put("machines", id=machine, call="{}", state="up", up_at=1.0, host_due=1.0)
        books.put("slots", attempt="att-1", rank=rank, machine=machine, **{} if rank else slot)
    return GangCheck(books.db, books.clock)


def test_a_gang_that_lacks_a_machine_is_reported(books: Books) -> None:
    gang(books, "mch-1", "mch-2").check()
    books.change("DELETE FROM slots WHERE rank = 1")
    with pytest.raises(InvariantBroken, match="att-1 was placed on 1 machines, and its job asks for 2"):
        GangCheck(books.db, books.clock).check()


def test_a_job_on_one_machine_is_no_gang(books: Books) -> None:
    books.put("jobs", id="job-1", state="running", desired="run", spec="{}")
    books.put("attempts", id="att-1", job="job-1", number=1, state="running")
    books.put("slots", attempt="att-1", rank=0, machine="mch-1", ended=True)
    GangCheck(books.db, books.clock).check()


@pytest.mark.parametrize(("reason", "reported"), [(None, True), ("exit_code", True), ("completed", False)])
def test_a_gang_that_continues_without_a_rank_is_reported(books: Books, reason: str | None, reported: bool) -> None:
    check = gang(books, "mch-1", "mch-2", ended=True, reason=reason)
    if reported:
        with pytest.raises(InvariantBroken, match="att-1 has lost its rank 0"):
            check.check()
    books.change("UPDATE attempts SET stopping_since = 1.0" if reported else "UPDATE attempts SET state = 'saving'")
    check.check()


def test_a_gang_that_waits_for_a_late_host_is_reported(books: Books) -> None:
    check, now = gang(books, "mch-1", "mch-2"), books.clock.now()
    check.check_late()
    books.change(f"UPDATE machines SET up_at = NULL, host_due = {now - LATE_SECONDS + 1} WHERE id = 'mch-2'")
    check.check_late()
    books.change(f"UPDATE machines SET host_due = {now - LATE_SECONDS - 1} WHERE id = 'mch-2'")
    with pytest.raises(InvariantBroken, match="att-1 still waits for the host of mch-2"):
        check.check_late()


def test_programs_of_one_gang_run_side_by_side_and_each_must_complete(books: Books) -> None:
    gang(books, "mch-1", "mch-2")
    books.change("UPDATE jobs SET state = 'completed', reason = 'completed'")
    books.change("UPDATE attempts SET state = 'ended', reason = 'completed'")
    ranks = [RunningProgram("job-1", "att-1", f"i-{rank}", 0, rank=rank) for rank in (0, 1)]
    for program in ranks:
        books.truth.started(program)
    assert books.broken == []
    for program in ranks:
        with pytest.raises(InvariantBroken, match="its program never was"):
            checkers(books).check_end()
        books.truth.ended(program)
        books.truth.complete(program)
    checkers(books).check_end()


def test_each_rank_has_output_of_its_own(books: Books) -> None:
    objects = StoredObjectsCheck(books.db, books.truth, books.store)
    gang(books, "mch-1", "mch-2")
    for rank in (0, 1):
        books.store.objects[log_segment_key("job-1", "att-1", rank, 1)] = DATA
        books.truth.written.append(OutputSegment("job-1", "att-1", rank, 1, 0, 9, SHA))
    books.put("log_segments", attempt="att-1", rank=0, n=1, start=0, end=9, sha256=SHA)
    with pytest.raises(InvariantBroken, match="segment 1 of att-1 was acknowledged"):
        objects.check()
    books.put("log_segments", attempt="att-1", rank=1, n=1, start=0, end=9, sha256=SHA)
    objects.check()


def test_a_second_call_makes_the_machines_that_the_first_did_not(books: Books) -> None:
    faults = FaultRates(RandomStream(1, "weather"), books.loop.time)
    cluster = Cluster(books.loop, environment(books.loop), faults, RandomStream(1, "cluster"))
    wanted = [Bootstrap(f"mch-{n}", nonce="nonce") for n in range(3)]

    async def call(count: int) -> list[str]:
        return [one.id for one in cluster.submit("mch-0", "dep-1", wanted[:count], 600.0)]

    first = books.loop.run_until_complete(call(2))
    again = books.loop.run_until_complete(call(3))
    assert again[:2] == first
    assert [one.machine for one in cluster.submissions.values()] == ["mch-0", "mch-1", "mch-2"]
    books.loop.run_until_complete(asyncio.sleep(20_000))
    assert all(one.started_at is not None for one in cluster.submissions.values())
