"""Show each checker a state that it must report."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import nullcontext

import pytest
from tests.simulation.books import Books, checkers, instance, make

from crucible.core.compute.offers import Market
from crucible.simulation.faults.checks.billing import BillingCheck
from crucible.simulation.faults.checks.checkers import BOUND_SECONDS, LAUNCH_SECONDS
from crucible.simulation.faults.checks.event_order import InvariantBroken
from crucible.simulation.faults.checks.placement import PlacementCheck
from crucible.simulation.faults.checks.stored_objects import StoredObjectsCheck
from crucible.simulation.faults.ground_truth import OutputFile, OutputSegment, RunningProgram, SavedCheckpoint
from crucible.storage.layout import artifact_key, bundle_key, checkpoint_key, log_segment_key

DATA = b"one line\n"
SHA = hashlib.sha256(DATA).hexdigest()


def test_a_checkpoint_that_is_listed_is_there_and_whole(books: Books) -> None:
    objects = StoredObjectsCheck(books.db, books.truth, books.store)
    books.put("checkpoints", id="ckp-1", job="job-1", attempt="att-1", sha256=SHA)
    with pytest.raises(InvariantBroken, match="not in the store"):
        objects.check()
    books.store.objects[checkpoint_key("job-1", SHA)] = b"other bytes"
    with pytest.raises(InvariantBroken, match="other bytes"):
        objects.check()
    books.store.objects[checkpoint_key("job-1", SHA)] = DATA
    objects.check()


def test_output_has_no_gap_and_nothing_of_it_is_lost(books: Books) -> None:
    objects = StoredObjectsCheck(books.db, books.truth, books.store)
    books.put("attempts", id="att-1", job="job-1")
    for n in (1, 2, 3):
        books.store.objects[log_segment_key("job-1", "att-1", 0, n)] = DATA
    books.put("log_segments", attempt="att-1", rank=0, n=1, start=0, end=9, sha256=SHA)
    objects.check()
    books.truth.written.append(OutputSegment("job-1", "att-1", 0, 2, 9, 18, SHA))
    with pytest.raises(InvariantBroken, match="was acknowledged"):
        objects.check()
    books.put("log_segments", attempt="att-1", rank=0, n=3, start=18, end=27, sha256=SHA)
    with pytest.raises(InvariantBroken, match="has a gap"):
        objects.check()
    books.put("log_segments", attempt="att-1", rank=0, n=2, start=9, end=18, sha256=SHA)
    objects.check()
    assert objects.unknown_objects() == []


def test_an_object_that_no_row_knows_is_told(books: Books) -> None:
    objects = StoredObjectsCheck(books.db, books.truth, books.store)
    key = checkpoint_key("job-1", SHA)
    books.store.objects[key] = DATA
    assert objects.unknown_objects() == [key]
    books.put("checkpoints", id="ckp-1", job="job-1", attempt="att-1", sha256=SHA, pruned_at=1.0)
    assert "is pruned" in objects.unpruned()
    mark = hashlib.sha256(key.encode()).hexdigest()[:40]
    books.put("meta", key=f"arriving:{mark}", value="{}")
    assert objects.unpruned() == "", "it comes again"


def test_a_bundle_that_is_listed_is_there_and_one_that_a_job_needs_is_listed(books: Books) -> None:
    objects = StoredObjectsCheck(books.db, books.truth, books.store)
    books.put("jobs", id="job-1", state="queued", spec=f'{{"bundle": "{SHA}"}}')
    books.put("jobs", id="job-2", state="queued", spec="{}")
    with pytest.raises(InvariantBroken, match="job-1 is kept, and its bundle is not"):
        objects.check()
    books.put("bundles", sha256=SHA)
    with pytest.raises(InvariantBroken, match="not in the store"):
        objects.check()
    books.store.objects[bundle_key(SHA)] = DATA
    objects.check()
    assert objects.unknown_objects() == []
    books.change("DELETE FROM bundles")
    books.change("UPDATE jobs SET pruned_at = 1.0")
    objects.check()
    assert objects.unknown_objects() == [bundle_key(SHA)]


def test_an_output_that_was_acknowledged_is_listed_and_there(books: Books) -> None:
    objects, key = StoredObjectsCheck(books.db, books.truth, books.store), artifact_key("job-1", "att-1", "model")
    books.truth.output(OutputFile("job-1", "att-1", "model", SHA))
    with pytest.raises(InvariantBroken, match="model of att-1 was acknowledged"):
        objects.check()
    books.put("artifacts", job="job-1", attempt="att-1", path="model", sha256=SHA)
    with pytest.raises(InvariantBroken, match="not in the store"):
        objects.check()
    books.store.objects[key] = b"other bytes"
    with pytest.raises(InvariantBroken, match="other bytes"):
        objects.check()
    books.store.objects[key] = DATA
    objects.check()
    assert objects.unknown_objects() == []


@pytest.mark.parametrize(
    ("reason", "detail", "machine", "told"),
    [
        ("completed", "", "up", True),
        ("completed", "nothing was heard of it", "up", False),
        ("completed", "", "gone", False),
        ("interrupted", "", "up", False),
    ],
)
def test_a_try_that_completes_before_its_outputs_are_in_is_told(
    books: Books, reason: str, detail: str, machine: str, told: bool
) -> None:
    objects = StoredObjectsCheck(books.db, books.truth, books.store)
    books.truth.complete(RunningProgram("job-1", "att-1", "i-1", 0))
    books.put("machines", id="mch-1", call="{}", state=machine)
    books.put("slots", attempt="att-1", machine="mch-1")
    books.put("attempts", id="att-1", job="job-1", state="saving")
    objects.commit()
    books.change(f"UPDATE attempts SET state = 'ended', reason = '{reason}', detail = '{detail}'")
    with pytest.raises(InvariantBroken, match="before its outputs were in") if told else nullcontext():
        objects.commit()
    assert books.truth.finishing == []


def test_two_live_tries_of_a_generation_are_told(books: Books) -> None:
    choices = PlacementCheck(books.db, books.cloud, books.clock)
    books.put("attempts", id="att-1", job="job-1", number=1, generation=1, state="running")
    choices.check()
    books.put("attempts", id="att-2", job="job-1", number=2, generation=1, state="placed")
    with pytest.raises(InvariantBroken, match="2 live tries"):
        choices.check()


def placed(books: Books, number: int, zone: str, reason: str | None) -> None:
    ended = books.clock.now() - 60 if reason else None
    name = f"{number}"
    books.put(
        "machines", id=f"mch-{name}", backend="cloud", region=zone, market=Market.SPOT.value, call="{}", capacity="{}"
    )
    books.put("slots", attempt=f"att-{name}", rank=0, machine=f"mch-{name}", ended=bool(reason), allocation="{}")
    state = "ended" if reason else "placed"
    row = {"number": number, "generation": 1, "backend": "cloud", "state": state, "reason": reason, "ended_at": ended}
    books.put("attempts", id=f"att-{name}", job="job-1", **row)


def test_a_try_where_its_job_failed_before_is_told(books: Books) -> None:
    choices = PlacementCheck(books.db, books.cloud, books.clock)
    placed(books, 1, "north-1", "interrupted")
    choices.check()
    placed(books, 2, "north-1", None)
    with pytest.raises(InvariantBroken, match="failed its job more often than north-2"):
        choices.check()


def test_a_try_elsewhere_or_where_nothing_else_is_to_be_had_is_fine(books: Books) -> None:
    choices = PlacementCheck(books.db, books.cloud, books.clock)
    placed(books, 1, "north-1", "interrupted")
    placed(books, 2, "north-2", "refused")
    books.cloud.sell_out(("south-1", Market.SPOT))
    placed(books, 3, "north-1", None)
    choices.check()


@pytest.mark.parametrize(
    ("spec", "market", "rate", "reported"),
    [
        ('{"market": "spot"}', Market.ON_DEMAND, 1000, True),
        ('{"market": "spot", "spot_fallback": true}', Market.ON_DEMAND, 1000, False),
        ('{"market": "spot"}', Market.ON_DEMAND, 0, False),
        ('{"market": "spot"}', Market.SPOT, 1000, False),
        ('{"market": "on_demand"}', Market.SPOT, 1000, True),
    ],
)
def test_a_job_that_pays_for_another_market_than_it_asks_for_is_reported(
    books: Books, spec: str, market: Market, rate: int, reported: bool
) -> None:
    placed(books, 1, "north-1", None)
    books.put("jobs", id="job-1", state="running", desired="run", spec=spec)
    books.change(f"UPDATE machines SET market = '{market.value}', rate = {rate}")
    with pytest.raises(InvariantBroken, match="mch-1, which is") if reported else nullcontext():
        PlacementCheck(books.db, books.cloud, books.clock).check()


def test_a_closed_bill_is_the_clouds(books: Books) -> None:
    bills = BillingCheck(books.db, books.cloud, books.clock)
    billing = '{"granularity": 1, "minimum": 60}'
    books.put("machines", id="mch-1", backend="cloud", call="{}", billing=billing, metered=False)
    assert "mch-1" in bills.open()
    bills.check()
    books.put("machines", id="mch-2", backend="cloud", call="{}", billing=billing, metered=True)
    bills.check()
    books.put("machines", id="mch-3", backend="cloud", call="{}", billing=billing, metered=True)
    books.put("price_segments", machine="mch-3", n=0, starts_at=0.0, ends_at=3600.0, rate=1000, native_id="i-1")
    with pytest.raises(InvariantBroken, match="cost 1000 micro-dollars by our ledger, 0 by the cloud"):
        bills.check()


def test_an_instance_without_an_intent_is_told(books: Books) -> None:
    checkers(books)
    make(books, "mch-1")
    assert books.broken == ["mch-1 is made before its intent is committed"]


def test_an_instance_that_nobody_wants_any_more_is_told(books: Books) -> None:
    found = checkers(books)
    books.put("machines", id="mch-1", backend="cloud", call="{}", billing="{}", state="releasing", ends_at=9e9)
    found.check(None)
    make(books, "mch-1")
    assert books.broken == [], "it was on its way"
    books.loop.run_until_complete(asyncio.sleep(LAUNCH_SECONDS + 1))
    books.cloud.honours_tokens = False
    make(books, "mch-1")
    assert books.broken == [f"mch-1 is made {LAUNCH_SECONDS + 1:.0f} s after it was given up"]


def test_a_cancel_that_was_answered_is_not_forgotten(books: Books) -> None:
    found = checkers(books)
    books.put("jobs", id="job-1", state="provisioning", desired="run", spec='{"name": "a"}')
    found.check(None)
    books.truth.cancel("job-1")
    with pytest.raises(InvariantBroken, match="as if it never was"):
        found.check(None)
    books.truth.resume("job-1")
    found.check(None)


def test_a_job_that_exists_twice_is_told(books: Books) -> None:
    found = checkers(books)
    for name in ("job-1", "job-2"):
        books.put("jobs", id=name, state="queued", desired="run", spec='{"name": "a"}')
    with pytest.raises(InvariantBroken, match="exists twice"):
        found.check(None)


def test_a_machine_that_is_gone_and_lives_is_told(books: Books) -> None:
    instance(books, "mch-1")
    found = checkers(books)
    books.put("machines", id="mch-1", backend="cloud", call="{}", state="gone")
    with pytest.raises(InvariantBroken, match="is gone by the books, and i-1 lives"):
        found.check_commit()


def test_a_submission_that_was_acknowledged_and_is_not_there_is_told(books: Books) -> None:
    found = checkers(books)
    books.truth.acknowledged("key-1", "job-1")
    with pytest.raises(InvariantBroken, match="does not exist"):
        found.check(None)
    books.truth.acknowledged("key-1", "job-2")
    assert books.broken == ["key-1 was acknowledged as job-1 and as job-2"]


def test_events_with_a_gap_are_told(books: Books) -> None:
    found = checkers(books)
    books.put("jobs", id="job-1", state="queued", desired="run", spec='{"name": "a"}', events=2)
    books.put("events", job="job-1", n=1, type="submitted", data="{}")
    with pytest.raises(InvariantBroken, match="have a gap"):
        found.check(None)
    books.put("events", job="job-1", n=2, type="queued", data="{}")
    found.check(None)


def test_a_checkpoint_that_was_acknowledged_and_has_no_row_is_told(books: Books) -> None:
    books.truth.checkpoint(SavedCheckpoint("job-1", "att-1", 5, SHA))
    with pytest.raises(InvariantBroken, match="at step 5 was acknowledged and has no row"):
        checkers(books).check(None)


def test_what_does_not_end_in_the_calm_is_told(books: Books) -> None:
    found, then = checkers(books), books.clock.now() - BOUND_SECONDS - 1
    books.put("machines", id="mch-1", backend="cloud", call="{}", state="releasing")
    found.check(0.0)
    books.loop.run_until_complete(asyncio.sleep(BOUND_SECONDS + 1))
    with pytest.raises(InvariantBroken, match="mch-1 is being released for"):
        found.check(0.0)
    books.change("UPDATE machines SET state = 'gone'")
    books.put("jobs", id="job-1", state="stopping", desired="cancel", spec='{"name": "a"}', events=1)
    books.put("events", job="job-1", n=1, type="cancel_requested", data="{}", at=then)
    with pytest.raises(InvariantBroken, match="job-1 was cancelled 900 s ago and is still stopping"):
        found.check(0.0)
    books.change(f"UPDATE jobs SET state = 'cancelled', ended_at = {then}")
    found.check(0.0)
    instance(books, "mch-2")
    books.put("attempts", id="att-1", job="job-1", state="ended")
    books.put("slots", attempt="att-1", rank=0, machine="mch-2", ended=True)
    with pytest.raises(InvariantBroken, match="i-1 lives 900 s after the end of its job"):
        found.check(0.0)


def test_what_is_left_to_do_is_told(books: Books) -> None:
    found = checkers(books)
    assert found.unfinished() == ""
    instance(books, "mch-1")
    assert found.unfinished() == "i-1 lives"
    books.put("machines", id="mch-1", backend="cloud", call="{}", state="up", metered=True)
    assert found.unfinished() == "mch-1 is up"
    books.put("effects", machine="mch-1", kind="terminate", done=False, error="no")
    assert found.unfinished() == "an effect is open: terminate mch-1 no"
    books.put("jobs", id="job-1", state="queued", desired="run", spec="{}", waiting="for room")
    assert found.unfinished() == "job-1 is queued for room"


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [("completed", "completed", "its program never was"), ("failed", "exit_code", "never exited with one")],
)
def test_an_end_that_never_was_is_told(books: Books, state: str, reason: str, told: str) -> None:
    books.put("jobs", id="job-1", state=state, desired="run", spec='{"name": "a"}', reason=reason)
    with pytest.raises(InvariantBroken, match=told):
        checkers(books).check_end()


def test_a_program_that_outlives_everything_is_told(books: Books) -> None:
    books.truth.started(RunningProgram("job-1", "att-1", "i-1", 0))
    with pytest.raises(InvariantBroken, match="still runs"):
        checkers(books).check_end()
