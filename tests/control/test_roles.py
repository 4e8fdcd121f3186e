from __future__ import annotations

from tests.control.world import Rig

from crucible.control import roles
from crucible.control.db import schema as t
from crucible.control.roles import HOLD_SECONDS, Duties, Duty

DUTY = "some-duty"


async def take(rig: Rig, holder: str) -> int | None:
    return await rig.sql(lambda conn: roles.take(conn, DUTY, holder, rig.clock.now()))


async def renew(rig: Rig, duties: Duties) -> frozenset[Duty]:
    return await rig.sql(lambda conn: duties.renew(conn, rig.clock.now()))


async def holds(rig: Rig, duties: Duties, duty: Duty = Duty.SCHEDULER) -> bool:
    return await rig.read(lambda conn: duties.holds(conn, duty))


async def test_the_first_has_it_and_keeps_its_epoch(rig: Rig) -> None:
    assert await take(rig, "a") == 1
    rig.clock.move(HOLD_SECONDS * 5)
    assert await take(rig, "a") == 1


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
    await rig.sql(lambda conn: roles.release(conn, "a"))
    assert await take(rig, "b") == 2


async def test_a_release_touches_nobody_elses(rig: Rig) -> None:
    await take(rig, "a")
    await rig.sql(lambda conn: roles.release(conn, "b"))
    assert await take(rig, "b") is None


async def test_duties_are_all_taken_by_the_first(rig: Rig) -> None:
    assert await renew(rig, rig.duties) == frozenset(Duty)
    other = Duties("w2")
    assert await renew(rig, other) == frozenset()
    assert not other.has(Duty.POLLER)
    assert not await holds(rig, other)
    assert rig.duties.has(Duty.POLLER)
    assert await holds(rig, rig.duties)
    assert {r["name"] for r in await rig.rows(t.roles)} == {d.value for d in Duty}


async def test_a_holder_that_lost_its_duty_learns_it_from_the_database(rig: Rig) -> None:
    other = Duties("w2")
    rig.clock.move(HOLD_SECONDS)
    assert await renew(rig, other) == frozenset(Duty)
    assert rig.duties.has(Duty.SCHEDULER), "as far as it knows"
    assert not await holds(rig, rig.duties)
    assert await renew(rig, rig.duties) == frozenset()
    assert not rig.duties.has(Duty.SCHEDULER)


async def test_a_duty_won_back_is_held_under_the_new_epoch_alone(rig: Rig) -> None:
    other, paused = Duties("w2"), Duties("w1")
    await renew(rig, paused)
    rig.clock.move(HOLD_SECONDS)
    await renew(rig, other)
    rig.clock.move(HOLD_SECONDS)
    await renew(rig, rig.duties)
    assert await holds(rig, rig.duties)
    assert not await holds(rig, paused), "the same name, an older epoch"
