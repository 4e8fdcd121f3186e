"""Every hook is told, in order, at least once, whatever dies and whoever hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.control.hooks.wired import DOWN, SECRET, URL, Wired
from tests.control.world import Rig, other_worker, service

from crucible.control.db import meta
from crucible.control.hooks import deliveries, messages, notifier
from crucible.control.hooks.notifier import Notifier
from crucible.control.people import projects
from crucible.control.reconcile.crashpoints import arm, disarm
from crucible.control.reconcile.roles import HOLD_SECONDS, Duty
from crucible.control.upkeep import restore_hold
from crucible.core.hooks import DISABLE, FIRST_WAIT, GIVE_UP, LONGEST_WAIT, HookEvent, Reply
from crucible.core.people.identity import OWNER
from crucible.core.signing import verify_message

OTHER = "https://hooks.example/other"


class Died(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    disarm()


async def test_the_end_of_a_job_is_told_signed(wired: Wired) -> None:
    await wired.hook()
    job = await wired.end_a_job()
    await wired.notify()
    (sent,) = wired.sent()
    verify_message(SECRET, sent.headers, sent.body, wired.rig.clock.now())
    (told,) = wired.told()
    assert (told["type"], told["data"]["job"]["id"], told["data"]["job"]["status"]) == (
        "job.completed",
        job,
        "completed",
    )


async def test_calls_are_counted_with_their_time_and_who_waits_to_be_tried_again(wired: Wired) -> None:
    async def waiting() -> int:
        return (await service(wired.rig).maintenance.gauges(OWNER)).stored.hooks_waiting

    await wired.hook()
    calls = wired.rig.services.sender.stats
    wired.post.replies[URL] = [DOWN]
    await wired.end_a_job()
    await wired.notify()
    assert (calls.delivered, calls.failed, calls.times.counts[-1]) == (0, 1, 1)
    assert await waiting() == 1
    wired.rig.clock.move(FIRST_WAIT * 2)
    await wired.notify()
    assert (calls.delivered, calls.failed, calls.times.counts[-1]) == (1, 1, 2)
    assert await waiting() == 0


async def test_nothing_is_told_twice_and_nothing_from_before(wired: Wired) -> None:
    await wired.end_a_job()
    await wired.hook()
    await wired.notify()
    assert wired.told() == []
    await wired.end_a_job()
    for _ in range(3):
        await wired.notify()
    assert wired.types() == ["job.completed"]


async def test_only_what_was_asked_for_of_the_own_project_is_told(wired: Wired) -> None:
    await wired.rig.sql(lambda conn: projects.add(conn, "elsewhere", "", 5.0))
    await wired.hook(events=[HookEvent.FAILED, HookEvent.STARTED])
    await wired.hook(OTHER)
    await wired.end_a_job(project="elsewhere")
    await wired.end_a_job(code=1)
    await wired.notify()
    assert wired.types() == ["job.failed"]
    assert wired.types(OTHER) == ["job.failed"]


async def test_events_come_in_the_order_of_the_feed(wired: Wired) -> None:
    await wired.hook()
    jobs = [await wired.end_a_job(code=n % 2) for n in range(5)]
    await wired.notify()
    assert [one["data"]["job"]["id"] for one in wired.told()] == jobs


async def test_what_is_not_taken_is_sent_again_under_the_same_id_before_what_follows(wired: Wired) -> None:
    hook = await wired.hook()
    wired.post.replies[URL] = [DOWN, Reply(500, "oh no")]
    first, second = await wired.end_a_job(), await wired.end_a_job()
    await wired.notify()
    await wired.notify()
    assert len(wired.sent()) == 1, "it waits"
    view = await wired.view(hook)
    assert (view.state, view.failures, view.last.answer) == ("failing", 1, "nobody answers")
    assert view.next_try_at
    wired.rig.clock.move(FIRST_WAIT)
    await wired.notify()
    wired.rig.clock.move(2 * FIRST_WAIT)
    await wired.notify()
    assert [one["data"]["job"]["id"] for one in wired.told()] == [first, first, first, second]
    assert len({one.headers["webhook-id"] for one in wired.sent()}) == 2
    view = await wired.view(hook)
    assert (view.state, view.failures, view.next_try_at) == ("enabled", 0, None)
    assert [one.outcome for one in await wired.tries(hook)] == ["delivered", "delivered", "failed", "failed"]


async def test_a_round_says_when_the_next_try_is_due(wired: Wired) -> None:
    await wired.hook()
    wired.post.replies[URL] = [DOWN]
    await wired.end_a_job()
    await wired.notify()
    wired.rig.clock.move(FIRST_WAIT - 1.5)
    assert await wired.notify() == pytest.approx(1.5)


async def test_a_receiver_that_hangs_holds_up_itself_alone(wired: Wired) -> None:
    await wired.hook()
    await wired.hook(OTHER)
    wired.post.hanging = {URL}
    await wired.end_a_job()
    part = wired.rig.services.notifier
    await part.round()
    await wired.until_sent(1, OTHER)
    await wired.end_a_job()
    async with asyncio.timeout(20):
        while len(wired.sent(OTHER)) < 2:
            await part.round()
            await asyncio.sleep(0.001)
    assert len(wired.sent()) == 1
    await part.stop()


async def test_what_was_under_way_when_a_server_stopped_is_sent_by_the_next(wired: Wired) -> None:
    await wired.hook()
    wired.post.hanging = {URL}
    await wired.end_a_job()
    await wired.rig.services.notifier.round()
    await wired.until_sent(1)
    await wired.rig.services.notifier.stop()
    wired.post.hanging = set()
    again = await wired.restarted()
    await again.notify()
    first, second = wired.sent()
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.parametrize(("point", "times"), [("hook.before_call", 1), ("hook.after_call", 2)])
async def test_a_death_at_either_border_loses_nothing(wired: Wired, point: str, times: int) -> None:
    def die() -> None:
        disarm()
        raise Died

    await wired.hook()
    await wired.end_a_job()
    arm(point, die)
    with pytest.raises(Died):
        await wired.rig.services.notifier._serve(
            (await wired.rig.services.hooks.list_hooks(OWNER, "default")).items[0].id
        )
    again = await wired.restarted()
    await again.notify()
    assert len(wired.sent()) == times
    assert len({one.headers["webhook-id"] for one in wired.sent()}) == 1
    await again.notify()
    assert len(wired.sent()) == times


async def test_a_message_is_given_up_after_a_day_and_the_next_has_its_turn(wired: Wired) -> None:
    hook = await wired.hook()
    first, second = await wired.end_a_job(), await wired.end_a_job()
    wired.post.replies[URL] = [DOWN, DOWN]
    await wired.notify()
    wired.rig.clock.move(GIVE_UP)
    await wired.notify()
    wired.rig.clock.move(LONGEST_WAIT)
    await wired.notify()
    assert [one["data"]["job"]["id"] for one in wired.told()] == [first, first, second]
    assert [one.outcome for one in await wired.tries(hook)] == ["delivered", "given_up", "failed"]
    assert (await wired.view(hook)).given_up == 1


async def test_days_of_failures_disable_a_hook_and_it_says_so(wired: Wired) -> None:
    hook = await wired.hook()
    await wired.end_a_job()
    await wired.end_a_job()
    wired.post.replies[URL] = [DOWN] * 2
    await wired.notify()
    wired.rig.clock.move(DISABLE)
    await wired.notify()
    view = await wired.view(hook)
    assert (view.state, view.enabled) == ("disabled", False)
    assert "5 days" in view.disabled_why
    await wired.notify()
    assert len(wired.sent()) == 2


async def test_one_that_was_disabled_is_told_what_happens_after_it_is_enabled(wired: Wired) -> None:
    hook = await wired.hook()
    wired.post.replies[URL] = [Reply(410, "gone")]
    await wired.end_a_job()
    await wired.notify()
    await wired.end_a_job()
    assert "410" in (await wired.view(hook)).disabled_why
    await wired.rig.services.hooks.change(OWNER, "default", hook, enabled=True)
    job = await wired.end_a_job()
    await wired.notify()
    assert wired.told()[-1]["data"]["job"]["id"] == job
    assert len(wired.sent()) == 2
    assert (await wired.view(hook)).disabled_why is None


async def test_enabling_one_that_waits_tries_it_at_once(wired: Wired) -> None:
    hook = await wired.hook()
    wired.post.replies[URL] = [DOWN]
    await wired.end_a_job()
    await wired.notify()
    await wired.rig.services.hooks.change(OWNER, "default", hook, enabled=True)
    await wired.notify()
    assert len(wired.sent()) == 2


@pytest.mark.parametrize("removed", [False, True])
async def test_one_that_was_switched_off_meanwhile_is_not_settled_by_an_old_try(wired: Wired, removed: bool) -> None:
    hook, hooks = await wired.hook(), wired.rig.services.hooks
    wired.post.hanging = {URL}
    await wired.end_a_job()
    await wired.rig.services.notifier.round()
    await wired.until_sent(1)
    before = await wired.row(hook)
    if removed:
        await hooks.remove(OWNER, "default", hook)
    else:
        await hooks.change(OWNER, "default", hook, enabled=False)
    wired.post.released.set()
    await wired.rig.services.notifier.wait_idle()
    assert await wired.rig.count(deliveries.t.deliveries) == 0
    left = (await hooks.list_hooks(OWNER, "default")).items
    assert [view.state for view in left] == ([] if removed else ["disabled"])
    assert removed or (await wired.row(hook)).cursor == before.cursor


async def test_only_the_holder_of_the_duty_tells(wired: Wired) -> None:
    await wired.hook()
    await wired.end_a_job()
    other = await other_worker(wired.rig, "w2")
    await other.duties.renew(other.ports.db, other.clock)
    await other.services.notifier.round()
    await other.services.notifier.wait_idle()
    assert wired.sent() == []
    wired.rig.clock.move(HOLD_SECONDS)
    await other.duties.renew(other.ports.db, other.clock)
    await wired.rig.services.notifier.round()  # it believes that it still has it
    await wired.rig.services.notifier.wait_idle()
    assert wired.sent() == [], "and finds that it has not"
    assert wired.rig.duties.has(Duty.NOTIFIER)
    await other.services.notifier.round()
    await other.services.notifier.wait_idle()
    assert len(wired.sent()) == 1


async def test_the_feed_is_looked_through_in_pieces_and_what_was_seen_is_written_down(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "WINDOW", 3)
    monkeypatch.setattr(notifier, "SKIP", 6)
    hook = await wired.hook(events=[HookEvent.FAILED])
    start = (await wired.row(hook)).cursor
    for _ in range(3):
        await wired.end_a_job()
    await wired.notify()
    assert (await wired.row(hook)).cursor >= start + 6
    await wired.end_a_job(code=1)
    await wired.notify()
    assert wired.types() == ["job.failed"]
    again = await wired.restarted()
    await again.notify()
    assert len(wired.sent()) == 1


async def test_the_last_tries_are_kept_and_no_more(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = await wired.hook()
    for _ in range(deliveries.MAX_KEPT + 5):
        await wired.rig.services.hooks.test(OWNER, "default", hook)
    assert len(await wired.tries(hook)) == deliveries.MAX_KEPT
    assert await wired.rig.count(deliveries.t.deliveries) == deliveries.MAX_KEPT


async def test_a_lost_key_is_a_failure_that_says_so(wired: Wired) -> None:
    hook = await wired.hook()
    (wired.rig.deployment.scratch / "secrets.keys").unlink()
    await wired.end_a_job()
    await wired.notify()
    assert wired.sent() == []
    assert "secrets.keys" in (await wired.view(hook)).last.answer


async def test_a_process_without_a_way_out_looks_at_nothing(rig: Rig) -> None:
    from crucible.control.hooks import Sender

    mute = Notifier(rig.ports, rig.duties, Sender(rig.ports, rig.services.vault, None))
    assert await mute.round() >= 60


async def test_a_restored_copy_tells_nobody_before_it_is_confirmed(wired: Wired) -> None:
    await wired.hook()
    await wired.end_a_job()
    await wired.rig.sql(lambda conn: meta.put(conn, restore_hold.RESTORED_AT, str(wired.rig.clock.now())))
    await wired.notify()
    assert wired.sent() == []
    await wired.rig.sql(lambda conn: restore_hold.confirm(conn, wired.rig.clock.now()))
    await wired.notify()
    assert wired.types() == ["job.completed"]


async def test_an_event_wakes_whoever_tells_others(wired: Wired) -> None:
    with wired.rig.ports.wakeups.listening("hooks") as listener:
        await wired.rig.submit()
        assert not await listener.wait(0.0), "nobody can be told of that"
        await wired.end_a_job()
        assert await listener.wait(0.0)
