"""Claims, and the order of what one machine needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.control.fakes import Gate, InlineCalls, Killed
from tests.control.harness import ControlHarness, join, other_worker, service, with_calls
from tests.control.reconcile.test_effects import effect, effects, intended, release, settle

from crucible.control.db import schema as t
from crucible.control.reconcile.outbox import CALL_DEADLINE, CLAIM_SECONDS, UNCONNECTED_SECONDS, Outbox
from crucible.core.errors import Unreachable

T = TypeVar("T")


async def test_effects_of_one_machine_keep_their_order(harness: ControlHarness) -> None:
    harness.backend.down = Unreachable("No answer.")
    await intended(harness)
    await harness.performer.perform_due()
    await release(harness)
    assert await harness.performer.perform_due() == 0, "the termination waits for the launch to settle"
    due = await harness.performer.next_due()
    assert due is not None
    assert due > harness.clock.now(), "and nobody asks again before the launch is due"
    assert harness.backend.terminated == []


async def test_machines_do_not_wait_for_each_other(two_backends: ControlHarness) -> None:
    harness = two_backends
    await harness.submit()
    await harness.submit(backend="ssh")
    harness.backend.down = Unreachable("No answer.")
    assert await harness.performer.perform_due() == 2
    assert len(harness.backends["ssh"].made) == 1


async def test_a_backend_that_breaks_stops_no_other(two_backends: ControlHarness) -> None:
    harness = two_backends
    await harness.submit()
    await harness.submit(backend="ssh")
    harness.backend.answers = [ZeroDivisionError("a bug"), "ok"]
    await harness.performer.perform_due()
    assert len(harness.backends["ssh"].made) == 1
    broken = next(e for e in await harness.rows(t.effects) if not e["done"])
    assert "local broke with ZeroDivisionError" in broken["error"]
    await settle(harness)
    assert len(harness.backend.made) == 1
    assert harness.backend.finds, "it may have made something before it broke"


async def test_a_machine_of_a_place_that_is_not_connected_any_more_stops_no_other(two_backends: ControlHarness) -> None:
    harness = two_backends
    await harness.submit(backend="ssh")
    await harness.submit()
    without = join(harness.ports, harness.clock, harness.calls, {"local": harness.backend}, harness.deployment.scratch)
    assert await without.performer.perform_due() == 1
    assert len(harness.backend.made) == 1
    assert await without.performer.next_due() == harness.clock.now() + UNCONNECTED_SECONDS
    harness.clock.move(UNCONNECTED_SECONDS)
    assert await without.performer.perform_due() == 1, "nobody else has done it"
    errors = {e["machine"]: e["error"] for e in await harness.rows(t.effects) if not e["done"]}
    (why,) = errors.values()
    assert "no backend 'ssh'" in why


async def test_what_another_worker_holds_is_left_alone(harness: ControlHarness) -> None:
    other = await other_worker(harness, "w2")
    await intended(harness)
    harness.backend.answers = [Killed(), "ok"]
    with pytest.raises(Killed):
        await harness.performer.perform_due()
    assert await other.performer.perform_due() == 0
    assert await other.performer.next_due() == harness.clock.now() + CLAIM_SECONDS
    harness.clock.move(CLAIM_SECONDS)
    assert await other.performer.perform_due() == 1
    row = await effect(harness)
    assert (row["claimed_by"], row["tries"], row["done"]) == (None, 2, True)
    assert harness.backend.finds, "the first worker's call may have made something"


async def test_who_held_a_claim_too_long_does_not_put_down_anothers(harness: ControlHarness) -> None:
    await intended(harness)
    mine, other = Outbox("w1", ["local"]), Outbox("w2", ["local"])
    (late,) = await harness.sql(lambda conn: mine.claim(conn, harness.clock.now()))
    harness.clock.move(CLAIM_SECONDS)
    (held,) = await harness.sql(lambda conn: other.claim(conn, harness.clock.now()))
    assert (held.tries, held.until) == (1, harness.clock.now() + CLAIM_SECONDS)
    assert await harness.sql(lambda conn: mine.mark_done(conn, late)) is False
    await harness.sql(lambda conn: mine.postpone(conn, late, "too late", 0))
    row = await effect(harness)
    assert (row["claimed_by"], row["done"], row["error"]) == ("w2", False, None)
    assert await harness.sql(lambda conn: other.mark_done(conn, held)) is True
    row = await effect(harness)
    assert (row["claimed_by"], row["claimed_until"], row["done"]) == (None, None, True)


class InterruptedCalls(InlineCalls):
    """Something happens between the first answer of a place and whoever asked for it."""

    def __init__(self, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._happens: Callable[[], Awaitable[None]] | None = happens

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        try:
            return await super().run(lane, work, deadline)
        finally:
            happens, self._happens = self._happens, None
            if happens is not None:
                await happens()


@pytest.mark.parametrize("answer", ["ok", "lost"])
async def test_a_refusal_held_until_another_has_sent_the_call_again_says_nothing(
    harness: ControlHarness, answer: str
) -> None:
    """Who stood still with it in hand knows of his own call alone: the other's made a machine."""
    harness.backend.answers = ["refused", answer, "ok"]
    other = await other_worker(harness, "w2")
    machine = await intended(harness)

    async def taken_over() -> None:
        harness.clock.move(CLAIM_SECONDS)
        assert await other.performer.perform_due() == 1

    await with_calls(harness, InterruptedCalls(taken_over)).performer.perform_due()
    assert len(harness.backend.made) == 1
    assert (await harness.machine(machine.id)).alive
    await settle(harness)
    assert (await harness.machine(machine.id)).native_id is not None


async def test_what_is_begun_delays_nothing_else(two_backends: ControlHarness) -> None:
    gate = Gate("local")
    harness = with_calls(two_backends, gate)
    await two_backends.submit()
    await two_backends.submit(backend="ssh")
    await harness.performer.start_due()
    async with asyncio.timeout(30):
        while not harness.backends["ssh"].made:
            await turns()
    assert len(harness.backend.made) == 0
    await harness.performer.start_due()
    gate.open.set()
    async with asyncio.timeout(30):
        while not all(done for _, done in await effects(harness)):
            await turns()
    assert len(harness.backend.launches) == 1, "begun once, however often we look"


async def test_what_is_left_under_way_is_taken_up_when_its_claim_has_run_out(two_backends: ControlHarness) -> None:
    harness = with_calls(two_backends, Gate("local"))
    await two_backends.submit()
    await harness.performer.start_due()
    await turns()
    await harness.performer.stop()
    assert await two_backends.performer.perform_due() == 0
    two_backends.clock.move(CLAIM_SECONDS)
    assert await two_backends.performer.perform_due() == 1
    assert len(harness.backend.made) == 1
    assert harness.backend.finds, "the first call may have been sent"


async def turns() -> None:
    """A few turns of the event loop."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_claims_of_a_dead_worker_of_our_name_are_ours(harness: ControlHarness) -> None:
    machine = await intended(harness)
    harness.backend.answers = [Killed(), "ok"]
    with pytest.raises(Killed):
        await harness.performer.perform_due()
    control = service(harness)
    await control.start()
    try:
        assert control.ready()
        await _until(harness, machine.id)
    finally:
        await control.stop()
    assert len(harness.backend.launches) == 2
    assert harness.backend.finds == [machine.id]


async def _until(harness: ControlHarness, machine: str) -> None:
    """Lets the loops run until the launch is taken up."""
    async with asyncio.timeout(30):
        while not (await harness.machine(machine)).launch_settled:
            await asyncio.sleep(0)


class SlowCalls(InlineCalls):
    """Every call takes a while of virtual time."""

    def __init__(self, harness: ControlHarness, seconds: float) -> None:
        super().__init__()
        self._rig = harness
        self._seconds = seconds

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        self._rig.clock.move(self._seconds)
        return await super().run(lane, work, deadline)


async def test_a_call_is_not_begun_when_the_claim_could_run_out_during_it(harness: ControlHarness) -> None:
    harness.backend.answers = ["nothing", "ok"]
    await intended(harness)
    await harness.performer.perform_due()
    harness.clock.move(60)
    slow = with_calls(harness, SlowCalls(harness, CLAIM_SECONDS - CALL_DEADLINE + 1))
    await slow.performer.perform_due()
    assert harness.backend.finds
    assert len(harness.backend.launches) == 1, "looking took so long that another may hold the claim by then"
    await settle(harness)
    assert (await harness.machine()).launch_settled
