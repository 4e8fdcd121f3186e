from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from tests.control.harness import ControlHarness

from crucible.control.db import schema as t
from crucible.control.db.postgres.failures import CommitUnknown
from crucible.control.reconcile.duties import HOLD_SECONDS, SHARED, Duties, Duty, release_duties, take_duty

T = TypeVar("T")

DUTY = "some-duty"
PLACES = ["local"]
"""What a harness is connected to."""


async def take(harness: ControlHarness, holder: str) -> int | None:
    return await harness.sql(lambda conn: take_duty(conn, DUTY, holder, harness.clock.now()))


async def renew(harness: ControlHarness, duties: Duties) -> frozenset[Duty]:
    await duties.renew(harness.ports.db, harness.clock)
    return frozenset(duty for duty in Duty if duties.has(duty))


async def holds(harness: ControlHarness, duties: Duties, duty: Duty = Duty.SCHEDULER) -> bool:
    return await harness.read(lambda conn: duties.holds(conn, duty))


async def test_the_first_has_it_and_keeps_its_epoch(harness: ControlHarness) -> None:
    assert await take(harness, "a") == 1
    harness.clock.move(HOLD_SECONDS * 5)
    assert await take(harness, "a") == 1


async def test_of_many_who_come_first_at_once_one_has_it(harness: ControlHarness) -> None:
    taken = await asyncio.gather(*(take(harness, f"holder {n}") for n in range(8)))
    assert sorted(taken, key=str) == [1, *[None] * 7]


async def test_another_waits_until_the_time_is_up(harness: ControlHarness) -> None:
    await take(harness, "a")
    harness.clock.move(HOLD_SECONDS - 1)
    assert await take(harness, "b") is None
    harness.clock.move(1)
    assert await take(harness, "b") == 2
    assert await take(harness, "a") is None


async def test_renewing_puts_the_end_off(harness: ControlHarness) -> None:
    await take(harness, "a")
    harness.clock.move(HOLD_SECONDS - 1)
    await take(harness, "a")
    harness.clock.move(HOLD_SECONDS - 1)
    assert await take(harness, "b") is None


async def test_the_epoch_grows_with_every_change_of_hands(harness: ControlHarness) -> None:
    epochs = []
    for holder in ("a", "b", "a", "b"):
        epochs.append(await take(harness, holder))
        harness.clock.move(HOLD_SECONDS)
    assert epochs == [1, 2, 3, 4]


async def test_a_release_hands_over_at_once(harness: ControlHarness) -> None:
    await take(harness, "a")
    await harness.sql(lambda conn: release_duties(conn, "a"))
    assert await take(harness, "b") == 2


async def test_a_release_touches_nobody_elses(harness: ControlHarness) -> None:
    await take(harness, "a")
    await harness.sql(lambda conn: release_duties(conn, "b"))
    assert await take(harness, "b") is None


async def test_duties_are_all_taken_by_the_first(harness: ControlHarness) -> None:
    assert await renew(harness, harness.duties) == frozenset(Duty)
    other = Duties("w2", PLACES)
    assert await renew(harness, other) == frozenset()
    assert not other.has(Duty.POLLER)
    assert not await holds(harness, other)
    assert harness.duties.has(Duty.POLLER)
    assert await holds(harness, harness.duties)
    assert {r["name"] for r in await harness.rows(t.roles)} == {d.value if d in SHARED else f"{d}:local" for d in Duty}


async def test_a_holder_that_lost_its_duty_learns_it_from_the_database(harness: ControlHarness) -> None:
    other = Duties("w2", PLACES)
    harness.clock.move(HOLD_SECONDS)
    assert await renew(harness, other) == frozenset(Duty)
    assert harness.duties.has(Duty.SCHEDULER), "as far as it knows"
    assert not await holds(harness, harness.duties)
    assert await renew(harness, harness.duties) == frozenset()
    assert not harness.duties.has(Duty.SCHEDULER)


async def test_a_duty_won_back_is_held_under_the_new_epoch_alone(harness: ControlHarness) -> None:
    other, paused = Duties("w2", PLACES), Duties("w1", PLACES)
    await renew(harness, paused)
    harness.clock.move(HOLD_SECONDS)
    await renew(harness, other)
    harness.clock.move(HOLD_SECONDS)
    await renew(harness, harness.duties)
    assert await holds(harness, harness.duties)
    assert not await holds(harness, paused), "the same name, an older epoch"


async def test_processes_with_other_places_have_duties_of_their_own(harness: ControlHarness) -> None:
    one, same, other = Duties("w1", ["a", "b"]), Duties("w2", ["b", "a"]), Duties("w3", ["b"])
    assert await renew(harness, one) == frozenset(Duty), "of one name with the harness's own worker"
    assert await renew(harness, other) == frozenset(Duty) - SHARED
    assert await renew(harness, same) == frozenset()


async def test_what_all_share_has_one_holder_whatever_the_places(harness: ControlHarness) -> None:
    harness.clock.move(HOLD_SECONDS)
    one, other = Duties("w2", ["a"]), Duties("w3", ["b"])
    assert await renew(harness, one) >= SHARED
    assert not await renew(harness, other) & SHARED


async def test_many_places_fit_into_a_name(harness: ControlHarness) -> None:
    assert await renew(harness, Duties("w1", [f"place-{number}" for number in range(99)])) == frozenset(Duty)


async def test_who_waits_looks_again_when_anothers_time_is_up(harness: ControlHarness) -> None:
    other = Duties("w2", PLACES)
    harness.clock.move(HOLD_SECONDS - 3)
    assert await other.renew(harness.ports.db, harness.clock) == 3.0
    harness.clock.move(3)
    assert await other.renew(harness.ports.db, harness.clock) == HOLD_SECONDS
    assert other.has(Duty.SCHEDULER)


async def test_a_renewal_that_is_not_committed_is_not_believed(harness: ControlHarness) -> None:
    class Broken:
        async def write(self, fn: Callable[[Connection], T]) -> T:
            await harness.sql(lambda conn: release_duties(conn, "w1"))
            await harness.sql(fn)
            raise CommitUnknown("Whether this was stored is not known.")

        async def read(self, fn: Callable[[Connection], T]) -> T:
            return await harness.read(fn)

        async def close(self) -> None: ...

    other = Duties("w2", PLACES)
    with pytest.raises(CommitUnknown):
        await other.renew(Broken(), harness.clock)
    assert not other.has(Duty.SCHEDULER)
