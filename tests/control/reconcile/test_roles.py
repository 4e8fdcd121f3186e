from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from tests.control.world import Rig

from crucible.control.db import schema as t
from crucible.control.db.postgres.failures import CommitUnknown
from crucible.control.reconcile import roles
from crucible.control.reconcile.roles import HOLD_SECONDS, SHARED, Duties, Duty

T = TypeVar("T")

DUTY = "some-duty"
PLACES = ["local"]
"""What a rig is connected to."""


async def take(rig: Rig, holder: str) -> int | None:
    return await rig.sql(lambda conn: roles.take_duty(conn, DUTY, holder, rig.clock.now()))


async def renew(rig: Rig, duties: Duties) -> frozenset[Duty]:
    await duties.renew(rig.ports.db, rig.clock)
    return frozenset(duty for duty in Duty if duties.has(duty))


async def holds(rig: Rig, duties: Duties, duty: Duty = Duty.SCHEDULER) -> bool:
    return await rig.read(lambda conn: duties.holds(conn, duty))


async def test_the_first_has_it_and_keeps_its_epoch(rig: Rig) -> None:
    assert await take(rig, "a") == 1
    rig.clock.move(HOLD_SECONDS * 5)
    assert await take(rig, "a") == 1


async def test_of_many_who_come_first_at_once_one_has_it(rig: Rig) -> None:
    taken = await asyncio.gather(*(take(rig, f"holder {n}") for n in range(8)))
    assert sorted(taken, key=str) == [1, *[None] * 7]


async def test_another_waits_until_the_time_is_up(rig: Rig) -> None:
    await take(rig, "a")
    rig.clock.move(HOLD_SECONDS - 1)
    assert await take(rig, "b") is None
    rig.clock.move(1)
    assert await take(rig, "b") == 2
    assert await take(rig, "a") is None


async def test_renewing_puts_the_end_off(rig: Rig) -> None:
    await take(rig, "a")
    rig.clock.move(HOLD_SECONDS - 1)
    await take(rig, "a")
    rig.clock.move(HOLD_SECONDS - 1)
    assert await take(rig, "b") is None


async def test_the_epoch_grows_with_every_change_of_hands(rig: Rig) -> None:
    epochs = []
    for holder in ("a", "b", "a", "b"):
        epochs.append(await take(rig, holder))
        rig.clock.move(HOLD_SECONDS)
    assert epochs == [1, 2, 3, 4]


async def test_a_release_hands_over_at_once(rig: Rig) -> None:
    await take(rig, "a")
    await rig.sql(lambda conn: roles.release_duties(conn, "a"))
    assert await take(rig, "b") == 2


async def test_a_release_touches_nobody_elses(rig: Rig) -> None:
    await take(rig, "a")
    await rig.sql(lambda conn: roles.release_duties(conn, "b"))
    assert await take(rig, "b") is None


async def test_duties_are_all_taken_by_the_first(rig: Rig) -> None:
    assert await renew(rig, rig.duties) == frozenset(Duty)
    other = Duties("w2", PLACES)
    assert await renew(rig, other) == frozenset()
    assert not other.has(Duty.POLLER)
    assert not await holds(rig, other)
    assert rig.duties.has(Duty.POLLER)
    assert await holds(rig, rig.duties)
    assert {r["name"] for r in await rig.rows(t.roles)} == {d.value if d in SHARED else f"{d}:local" for d in Duty}


async def test_a_holder_that_lost_its_duty_learns_it_from_the_database(rig: Rig) -> None:
    other = Duties("w2", PLACES)
    rig.clock.move(HOLD_SECONDS)
    assert await renew(rig, other) == frozenset(Duty)
    assert rig.duties.has(Duty.SCHEDULER), "as far as it knows"
    assert not await holds(rig, rig.duties)
    assert await renew(rig, rig.duties) == frozenset()
    assert not rig.duties.has(Duty.SCHEDULER)


async def test_a_duty_won_back_is_held_under_the_new_epoch_alone(rig: Rig) -> None:
    other, paused = Duties("w2", PLACES), Duties("w1", PLACES)
    await renew(rig, paused)
    rig.clock.move(HOLD_SECONDS)
    await renew(rig, other)
    rig.clock.move(HOLD_SECONDS)
    await renew(rig, rig.duties)
    assert await holds(rig, rig.duties)
    assert not await holds(rig, paused), "the same name, an older epoch"


async def test_processes_with_other_places_have_duties_of_their_own(rig: Rig) -> None:
    one, same, other = Duties("w1", ["a", "b"]), Duties("w2", ["b", "a"]), Duties("w3", ["b"])
    assert await renew(rig, one) == frozenset(Duty), "of one name with the rig's own worker"
    assert await renew(rig, other) == frozenset(Duty) - SHARED
    assert await renew(rig, same) == frozenset()


async def test_what_all_share_has_one_holder_whatever_the_places(rig: Rig) -> None:
    rig.clock.move(HOLD_SECONDS)
    one, other = Duties("w2", ["a"]), Duties("w3", ["b"])
    assert await renew(rig, one) >= SHARED
    assert not await renew(rig, other) & SHARED


async def test_many_places_fit_into_a_name(rig: Rig) -> None:
    assert await renew(rig, Duties("w1", [f"place-{number}" for number in range(99)])) == frozenset(Duty)


async def test_who_waits_looks_again_when_anothers_time_is_up(rig: Rig) -> None:
    other = Duties("w2", PLACES)
    rig.clock.move(HOLD_SECONDS - 3)
    assert await other.renew(rig.ports.db, rig.clock) == 3.0
    rig.clock.move(3)
    assert await other.renew(rig.ports.db, rig.clock) == HOLD_SECONDS
    assert other.has(Duty.SCHEDULER)


async def test_a_renewal_that_is_not_committed_is_not_believed(rig: Rig) -> None:
    class Broken:
        async def write(self, fn: Callable[[Connection], T]) -> T:
            await rig.sql(lambda conn: roles.release_duties(conn, "w1"))
            await rig.sql(fn)
            raise CommitUnknown("Whether this was stored is not known.")

        async def read(self, fn: Callable[[Connection], T]) -> T:
            return await rig.read(fn)

        async def close(self) -> None: ...

    other = Duties("w2", PLACES)
    with pytest.raises(CommitUnknown):
        await other.renew(Broken(), rig.clock)
    assert not other.has(Duty.SCHEDULER)
