"""Claims, and the order of what one machine needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.control.fakes import Gate, InlineCalls, Killed
from tests.control.reconcile.test_effects import effect, effects, intended, release, settle
from tests.control.world import Rig, join, other_worker, service, with_calls

from crucible.control.db import schema as t
from crucible.control.reconcile.outbox import CALL_DEADLINE, CLAIM_SECONDS, UNCONNECTED_SECONDS, Outbox
from crucible.core.errors import Unreachable

T = TypeVar("T")


async def test_effects_of_one_machine_keep_their_order(rig: Rig) -> None:
    rig.backend.down = Unreachable("No answer.")
    await intended(rig)
    await rig.performer.perform_due()
    await release(rig)
    assert await rig.performer.perform_due() == 0, "the termination waits for the launch to settle"
    due = await rig.performer.next_due()
    assert due is not None
    assert due > rig.clock.now(), "and nobody asks again before the launch is due"
    assert rig.backend.terminated == []


async def test_machines_do_not_wait_for_each_other(two_backends: Rig) -> None:
    rig = two_backends
    await rig.submit()
    await rig.submit(backend="ssh")
    rig.backend.down = Unreachable("No answer.")
    assert await rig.performer.perform_due() == 2
    assert len(rig.backends["ssh"].made) == 1


async def test_a_backend_that_breaks_stops_no_other(two_backends: Rig) -> None:
    rig = two_backends
    await rig.submit()
    await rig.submit(backend="ssh")
    rig.backend.answers = [ZeroDivisionError("a bug"), "ok"]
    await rig.performer.perform_due()
    assert len(rig.backends["ssh"].made) == 1
    broken = next(e for e in await rig.rows(t.effects) if not e["done"])
    assert "local broke with ZeroDivisionError" in broken["error"]
    await settle(rig)
    assert len(rig.backend.made) == 1
    assert rig.backend.finds, "it may have made something before it broke"


async def test_a_machine_of_a_place_that_is_not_connected_any_more_stops_no_other(two_backends: Rig) -> None:
    rig = two_backends
    await rig.submit(backend="ssh")
    await rig.submit()
    without = join(rig.ports, rig.clock, rig.calls, {"local": rig.backend}, rig.deployment.scratch)
    assert await without.performer.perform_due() == 1
    assert len(rig.backend.made) == 1
    assert await without.performer.next_due() == rig.clock.now() + UNCONNECTED_SECONDS
    rig.clock.move(UNCONNECTED_SECONDS)
    assert await without.performer.perform_due() == 1, "nobody else has done it"
    errors = {e["machine"]: e["error"] for e in await rig.rows(t.effects) if not e["done"]}
    (why,) = errors.values()
    assert "no backend 'ssh'" in why


async def test_what_another_worker_holds_is_left_alone(rig: Rig) -> None:
    other = await other_worker(rig, "w2")
    await intended(rig)
    rig.backend.answers = [Killed(), "ok"]
    with pytest.raises(Killed):
        await rig.performer.perform_due()
    assert await other.performer.perform_due() == 0
    assert await other.performer.next_due() == rig.clock.now() + CLAIM_SECONDS
    rig.clock.move(CLAIM_SECONDS)
    assert await other.performer.perform_due() == 1
    row = await effect(rig)
    assert (row["claimed_by"], row["tries"], row["done"]) == (None, 2, True)
    assert rig.backend.finds, "the first worker's call may have made something"


async def test_who_held_a_claim_too_long_does_not_put_down_anothers(rig: Rig) -> None:
    await intended(rig)
    mine, other = Outbox("w1", ["local"]), Outbox("w2", ["local"])
    (late,) = await rig.sql(lambda conn: mine.claim(conn, rig.clock.now()))
    rig.clock.move(CLAIM_SECONDS)
    (held,) = await rig.sql(lambda conn: other.claim(conn, rig.clock.now()))
    assert (held.tries, held.until) == (1, rig.clock.now() + CLAIM_SECONDS)
    assert await rig.sql(lambda conn: mine.mark_done(conn, late)) is False
    await rig.sql(lambda conn: mine.postpone(conn, late, "too late", 0))
    row = await effect(rig)
    assert (row["claimed_by"], row["done"], row["error"]) == ("w2", False, None)
    assert await rig.sql(lambda conn: other.mark_done(conn, held)) is True
    row = await effect(rig)
    assert (row["claimed_by"], row["claimed_until"], row["done"]) == (None, None, True)


class Meanwhile(InlineCalls):
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
async def test_a_refusal_held_until_another_has_sent_the_call_again_says_nothing(rig: Rig, answer: str) -> None:
    """Who stood still with it in hand knows of his own call alone: the other's made a machine."""
    rig.backend.answers = ["refused", answer, "ok"]
    other = await other_worker(rig, "w2")
    machine = await intended(rig)

    async def taken_over() -> None:
        rig.clock.move(CLAIM_SECONDS)
        assert await other.performer.perform_due() == 1

    await with_calls(rig, Meanwhile(taken_over)).performer.perform_due()
    assert len(rig.backend.made) == 1
    assert (await rig.machine(machine.id)).alive
    await settle(rig)
    assert (await rig.machine(machine.id)).native_id is not None


async def test_what_is_begun_delays_nothing_else(two_backends: Rig) -> None:
    gate = Gate("local")
    rig = with_calls(two_backends, gate)
    await two_backends.submit()
    await two_backends.submit(backend="ssh")
    await rig.performer.start_due()
    async with asyncio.timeout(30):
        while not rig.backends["ssh"].made:
            await turns()
    assert len(rig.backend.made) == 0
    await rig.performer.start_due()
    gate.open.set()
    async with asyncio.timeout(30):
        while not all(done for _, done in await effects(rig)):
            await turns()
    assert len(rig.backend.launches) == 1, "begun once, however often we look"


async def test_what_is_left_under_way_is_taken_up_when_its_claim_has_run_out(two_backends: Rig) -> None:
    rig = with_calls(two_backends, Gate("local"))
    await two_backends.submit()
    await rig.performer.start_due()
    await turns()
    await rig.performer.stop()
    assert await two_backends.performer.perform_due() == 0
    two_backends.clock.move(CLAIM_SECONDS)
    assert await two_backends.performer.perform_due() == 1
    assert len(rig.backend.made) == 1
    assert rig.backend.finds, "the first call may have been sent"


async def turns() -> None:
    """A few turns of the event loop."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_claims_of_a_dead_worker_of_our_name_are_ours(rig: Rig) -> None:
    machine = await intended(rig)
    rig.backend.answers = [Killed(), "ok"]
    with pytest.raises(Killed):
        await rig.performer.perform_due()
    control = service(rig)
    await control.start()
    try:
        assert control.ready()
        await _until(rig, machine.id)
    finally:
        await control.stop()
    assert len(rig.backend.launches) == 2
    assert rig.backend.finds == [machine.id]


async def _until(rig: Rig, machine: str) -> None:
    """Lets the loops run until the launch is taken up."""
    async with asyncio.timeout(30):
        while not (await rig.machine(machine)).launch_settled:
            await asyncio.sleep(0)


class SlowCalls(InlineCalls):
    """Every call takes a while of virtual time."""

    def __init__(self, rig: Rig, seconds: float) -> None:
        super().__init__()
        self._rig = rig
        self._seconds = seconds

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        self._rig.clock.move(self._seconds)
        return await super().run(lane, work, deadline)


async def test_a_call_is_not_begun_when_the_claim_could_run_out_during_it(rig: Rig) -> None:
    rig.backend.answers = ["nothing", "ok"]
    await intended(rig)
    await rig.performer.perform_due()
    rig.clock.move(60)
    slow = with_calls(rig, SlowCalls(rig, CLAIM_SECONDS - CALL_DEADLINE + 1))
    await slow.performer.perform_due()
    assert rig.backend.finds
    assert len(rig.backend.launches) == 1, "looking took so long that another may hold the claim by then"
    await settle(rig)
    assert (await rig.machine()).launch_settled
