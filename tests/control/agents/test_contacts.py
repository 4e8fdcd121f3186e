from __future__ import annotations

from tests.control.fakes import START
from tests.control.harness import ControlHarness

from crucible.control.agents.contacts import Contacts


def test_the_newest_contact_of_each_is_kept_until_it_is_taken() -> None:
    contacts = Contacts()
    contacts.record_attempt("a", 1.0)
    contacts.record_attempt("a", 2.0)
    contacts.record_machine("m", 3.0)
    assert contacts.has_pending
    batch = contacts.take()
    assert (batch.attempts, batch.machines) == ({"a": 2.0}, {"m": 3.0})
    assert contacts.take().attempts == {}


def test_what_is_given_back_does_not_hide_what_is_newer() -> None:
    contacts = Contacts()
    contacts.record_attempt("a", 1.0)
    contacts.record_machine("m", 1.0)
    batch = contacts.take()
    contacts.record_attempt("a", 2.0)
    contacts.restore(batch)
    found = contacts.take()
    assert (found.attempts, found.machines) == ({"a": 2.0}, {"m": 1.0})


def test_without_contacts_nothing_waits() -> None:
    assert not Contacts().has_pending


async def test_a_batch_is_stored_where_it_belongs(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    other = await harness.attempt(await harness.submit())
    machine = await harness.machine()
    harness.contacts.record_attempt(runner.attempt, START + 11.0)
    harness.contacts.record_attempt("att-unknown", START + 12.0)
    harness.contacts.record_machine(machine.id, START + 13.0)
    batch = harness.contacts.take()
    await harness.sql(batch.store)
    assert (await harness.attempt(job)).last_seen == START + 11.0
    assert (await harness.attempt(other.job)).last_seen is None
    found = await harness.machine()
    assert found.last_seen == START + 13.0
    assert found.version == machine.version, "a sign of life outdates no decision"


async def test_contacts_are_flushed_by_the_sweep_and_keep_a_quiet_job_reachable(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    for _ in range(4):
        harness.clock.move(30)
        await harness.agents.attempt_desired(runner.attempt, 0, False, 0, 0)
        await harness.reconciler.round()
    assert (await harness.world(job)).job.conditions == frozenset()
