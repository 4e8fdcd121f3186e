"""Every hook is told, in order, at least once, whatever dies and whoever hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.control.harness import ControlHarness, other_worker, service
from tests.control.hooks.harness import DOWN, SECRET, URL, HookHarness

from crucible.control.db import meta
from crucible.control.hooks import deliveries, messages, notifier
from crucible.control.hooks.notifier import Notifier
from crucible.control.people import projects
from crucible.control.reconcile.crashpoints import arm, disarm
from crucible.control.reconcile.duties import HOLD_SECONDS, Duty
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


async def test_the_end_of_a_job_is_told_signed(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    job = await hook_harness.end_a_job()
    await hook_harness.notify()
    (sent,) = hook_harness.sent()
    verify_message(SECRET, sent.headers, sent.body, hook_harness.harness.clock.now())
    (told,) = hook_harness.messages()
    assert (told["type"], told["data"]["job"]["id"], told["data"]["job"]["status"]) == (
        "job.completed",
        job,
        "completed",
    )


async def test_calls_are_counted_with_their_time_and_who_waits_to_be_tried_again(hook_harness: HookHarness) -> None:
    async def waiting() -> int:
        return (await service(hook_harness.harness).maintenance.gauges(OWNER)).stored.hooks_waiting

    await hook_harness.hook()
    calls = hook_harness.harness.services.sender.stats
    hook_harness.post.replies[URL] = [DOWN]
    await hook_harness.end_a_job()
    await hook_harness.notify()
    assert (calls.delivered, calls.failed, calls.times.counts[-1]) == (0, 1, 1)
    assert await waiting() == 1
    hook_harness.harness.clock.move(FIRST_WAIT * 2)
    await hook_harness.notify()
    assert (calls.delivered, calls.failed, calls.times.counts[-1]) == (1, 1, 2)
    assert await waiting() == 0


async def test_nothing_is_told_twice_and_nothing_from_before(hook_harness: HookHarness) -> None:
    await hook_harness.end_a_job()
    await hook_harness.hook()
    await hook_harness.notify()
    assert hook_harness.messages() == []
    await hook_harness.end_a_job()
    for _ in range(3):
        await hook_harness.notify()
    assert hook_harness.types() == ["job.completed"]


async def test_only_what_was_asked_for_of_the_own_project_is_told(hook_harness: HookHarness) -> None:
    await hook_harness.harness.sql(lambda conn: projects.add(conn, "elsewhere", "", 5.0))
    await hook_harness.hook(events=[HookEvent.FAILED, HookEvent.STARTED])
    await hook_harness.hook(OTHER)
    await hook_harness.end_a_job(project="elsewhere")
    await hook_harness.end_a_job(code=1)
    await hook_harness.notify()
    assert hook_harness.types() == ["job.failed"]
    assert hook_harness.types(OTHER) == ["job.failed"]


async def test_events_come_in_the_order_of_the_feed(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    jobs = [await hook_harness.end_a_job(code=n % 2) for n in range(5)]
    await hook_harness.notify()
    assert [one["data"]["job"]["id"] for one in hook_harness.messages()] == jobs


async def test_what_is_not_taken_is_sent_again_under_the_same_id_before_what_follows(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    hook_harness.post.replies[URL] = [DOWN, Reply(500, "oh no")]
    first, second = await hook_harness.end_a_job(), await hook_harness.end_a_job()
    await hook_harness.notify()
    await hook_harness.notify()
    assert len(hook_harness.sent()) == 1, "it waits"
    view = await hook_harness.view(hook)
    assert (view.state, view.failures, view.last.answer) == ("failing", 1, "nobody answers")
    assert view.next_try_at
    hook_harness.harness.clock.move(FIRST_WAIT)
    await hook_harness.notify()
    hook_harness.harness.clock.move(2 * FIRST_WAIT)
    await hook_harness.notify()
    assert [one["data"]["job"]["id"] for one in hook_harness.messages()] == [first, first, first, second]
    assert len({one.headers["webhook-id"] for one in hook_harness.sent()}) == 2
    view = await hook_harness.view(hook)
    assert (view.state, view.failures, view.next_try_at) == ("enabled", 0, None)
    assert [one.outcome for one in await hook_harness.tries(hook)] == ["delivered", "delivered", "failed", "failed"]


async def test_a_round_says_when_the_next_try_is_due(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    hook_harness.post.replies[URL] = [DOWN]
    await hook_harness.end_a_job()
    await hook_harness.notify()
    hook_harness.harness.clock.move(FIRST_WAIT - 1.5)
    assert await hook_harness.notify() == pytest.approx(1.5)


async def test_a_receiver_that_hangs_holds_up_itself_alone(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    await hook_harness.hook(OTHER)
    hook_harness.post.hanging = {URL}
    await hook_harness.end_a_job()
    part = hook_harness.harness.services.notifier
    await part.round()
    await hook_harness.until_sent(1, OTHER)
    await hook_harness.end_a_job()
    async with asyncio.timeout(20):
        while len(hook_harness.sent(OTHER)) < 2:
            await part.round()
            await asyncio.sleep(0.001)
    assert len(hook_harness.sent()) == 1
    await part.stop()


async def test_what_was_under_way_when_a_server_stopped_is_sent_by_the_next(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    hook_harness.post.hanging = {URL}
    await hook_harness.end_a_job()
    await hook_harness.harness.services.notifier.round()
    await hook_harness.until_sent(1)
    await hook_harness.harness.services.notifier.stop()
    hook_harness.post.hanging = set()
    again = await hook_harness.restarted()
    await again.notify()
    first, second = hook_harness.sent()
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.parametrize(("point", "times"), [("hook.before_call", 1), ("hook.after_call", 2)])
async def test_a_death_at_either_border_loses_nothing(hook_harness: HookHarness, point: str, times: int) -> None:
    def die() -> None:
        disarm()
        raise Died

    await hook_harness.hook()
    await hook_harness.end_a_job()
    arm(point, die)
    with pytest.raises(Died):
        await hook_harness.harness.services.notifier._serve(
            (await hook_harness.harness.services.hooks.list_hooks(OWNER, "default")).items[0].id
        )
    again = await hook_harness.restarted()
    await again.notify()
    assert len(hook_harness.sent()) == times
    assert len({one.headers["webhook-id"] for one in hook_harness.sent()}) == 1
    await again.notify()
    assert len(hook_harness.sent()) == times


async def test_a_message_is_given_up_after_a_day_and_the_next_has_its_turn(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    first, second = await hook_harness.end_a_job(), await hook_harness.end_a_job()
    hook_harness.post.replies[URL] = [DOWN, DOWN]
    await hook_harness.notify()
    hook_harness.harness.clock.move(GIVE_UP)
    await hook_harness.notify()
    hook_harness.harness.clock.move(LONGEST_WAIT)
    await hook_harness.notify()
    assert [one["data"]["job"]["id"] for one in hook_harness.messages()] == [first, first, second]
    assert [one.outcome for one in await hook_harness.tries(hook)] == ["delivered", "given_up", "failed"]
    assert (await hook_harness.view(hook)).given_up == 1


async def test_days_of_failures_disable_a_hook_and_it_says_so(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    await hook_harness.end_a_job()
    await hook_harness.end_a_job()
    hook_harness.post.replies[URL] = [DOWN] * 2
    await hook_harness.notify()
    hook_harness.harness.clock.move(DISABLE)
    await hook_harness.notify()
    view = await hook_harness.view(hook)
    assert (view.state, view.enabled) == ("disabled", False)
    assert "5 days" in view.disabled_why
    await hook_harness.notify()
    assert len(hook_harness.sent()) == 2


async def test_one_that_was_disabled_is_told_what_happens_after_it_is_enabled(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    hook_harness.post.replies[URL] = [Reply(410, "gone")]
    await hook_harness.end_a_job()
    await hook_harness.notify()
    await hook_harness.end_a_job()
    assert "410" in (await hook_harness.view(hook)).disabled_why
    await hook_harness.harness.services.hooks.change(OWNER, "default", hook, enabled=True)
    job = await hook_harness.end_a_job()
    await hook_harness.notify()
    assert hook_harness.messages()[-1]["data"]["job"]["id"] == job
    assert len(hook_harness.sent()) == 2
    assert (await hook_harness.view(hook)).disabled_why is None


async def test_enabling_one_that_waits_tries_it_at_once(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    hook_harness.post.replies[URL] = [DOWN]
    await hook_harness.end_a_job()
    await hook_harness.notify()
    await hook_harness.harness.services.hooks.change(OWNER, "default", hook, enabled=True)
    await hook_harness.notify()
    assert len(hook_harness.sent()) == 2


@pytest.mark.parametrize("removed", [False, True])
async def test_one_that_was_switched_off_meanwhile_is_not_settled_by_an_old_try(
    hook_harness: HookHarness, removed: bool
) -> None:
    hook, hooks = await hook_harness.hook(), hook_harness.harness.services.hooks
    hook_harness.post.hanging = {URL}
    await hook_harness.end_a_job()
    await hook_harness.harness.services.notifier.round()
    await hook_harness.until_sent(1)
    before = await hook_harness.row(hook)
    if removed:
        await hooks.remove(OWNER, "default", hook)
    else:
        await hooks.change(OWNER, "default", hook, enabled=False)
    hook_harness.post.released.set()
    await hook_harness.harness.services.notifier.wait_idle()
    assert await hook_harness.harness.count(deliveries.t.deliveries) == 0
    left = (await hooks.list_hooks(OWNER, "default")).items
    assert [view.state for view in left] == ([] if removed else ["disabled"])
    assert removed or (await hook_harness.row(hook)).cursor == before.cursor


async def test_only_the_holder_of_the_duty_tells(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    await hook_harness.end_a_job()
    other = await other_worker(hook_harness.harness, "w2")
    await other.duties.renew(other.ports.db, other.clock)
    await other.services.notifier.round()
    await other.services.notifier.wait_idle()
    assert hook_harness.sent() == []
    hook_harness.harness.clock.move(HOLD_SECONDS)
    await other.duties.renew(other.ports.db, other.clock)
    await hook_harness.harness.services.notifier.round()  # it believes that it still has it
    await hook_harness.harness.services.notifier.wait_idle()
    assert hook_harness.sent() == [], "and finds that it has not"
    assert hook_harness.harness.duties.has(Duty.NOTIFIER)
    await other.services.notifier.round()
    await other.services.notifier.wait_idle()
    assert len(hook_harness.sent()) == 1


async def test_the_feed_is_looked_through_in_pieces_and_what_was_seen_is_written_down(
    hook_harness: HookHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "WINDOW", 3)
    monkeypatch.setattr(notifier, "SKIP", 6)
    hook = await hook_harness.hook(events=[HookEvent.FAILED])
    start = (await hook_harness.row(hook)).cursor
    for _ in range(3):
        await hook_harness.end_a_job()
    await hook_harness.notify()
    assert (await hook_harness.row(hook)).cursor >= start + 6
    await hook_harness.end_a_job(code=1)
    await hook_harness.notify()
    assert hook_harness.types() == ["job.failed"]
    again = await hook_harness.restarted()
    await again.notify()
    assert len(hook_harness.sent()) == 1


async def test_the_last_tries_are_kept_and_no_more(hook_harness: HookHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = await hook_harness.hook()
    for _ in range(deliveries.MAX_KEPT + 5):
        await hook_harness.harness.services.hooks.test(OWNER, "default", hook)
    assert len(await hook_harness.tries(hook)) == deliveries.MAX_KEPT
    assert await hook_harness.harness.count(deliveries.t.deliveries) == deliveries.MAX_KEPT


async def test_a_lost_key_is_a_failure_that_says_so(hook_harness: HookHarness) -> None:
    hook = await hook_harness.hook()
    (hook_harness.harness.deployment.scratch / "secrets.keys").unlink()
    await hook_harness.end_a_job()
    await hook_harness.notify()
    assert hook_harness.sent() == []
    assert "secrets.keys" in (await hook_harness.view(hook)).last.answer


async def test_a_process_without_a_way_out_looks_at_nothing(harness: ControlHarness) -> None:
    from crucible.control.hooks import Sender

    mute = Notifier(harness.ports, harness.duties, Sender(harness.ports, harness.services.vault, None))
    assert await mute.round() >= 60


async def test_a_restored_copy_tells_nobody_before_it_is_confirmed(hook_harness: HookHarness) -> None:
    await hook_harness.hook()
    await hook_harness.end_a_job()
    await hook_harness.harness.sql(
        lambda conn: meta.put(conn, restore_hold.RESTORED_AT, str(hook_harness.harness.clock.now()))
    )
    await hook_harness.notify()
    assert hook_harness.sent() == []
    await hook_harness.harness.sql(lambda conn: restore_hold.confirm(conn, hook_harness.harness.clock.now()))
    await hook_harness.notify()
    assert hook_harness.types() == ["job.completed"]


async def test_an_event_wakes_whoever_tells_others(hook_harness: HookHarness) -> None:
    with hook_harness.harness.ports.wakeups.listening("hooks") as listener:
        await hook_harness.harness.submit()
        assert not await listener.wait(0.0), "nobody can be told of that"
        await hook_harness.end_a_job()
        assert await listener.wait(0.0)
