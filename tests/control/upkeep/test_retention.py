from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from tests.control.fakes import Killed
from tests.control.harness import ControlHarness, FakeRunner, add_row, pieces, sha

from crucible.control.db import schema as t
from crucible.control.objects import gc_marks, pending_objects
from crucible.control.objects.bundles import MARK
from crucible.control.objects.quota import QuotaLimits, StoreQuota
from crucible.control.upkeep import restore_hold
from crucible.control.upkeep import retention as retention_module
from crucible.control.upkeep.retention import RemovalResult, Retention
from crucible.core.errors import Conflict
from crucible.core.ids import Prefix
from crucible.core.job.retention import DAY
from crucible.core.people.identity import OWNER
from crucible.core.views.server import UnprunedView
from crucible.storage import HashMismatch, Store, StoreDenied, StoreUnreachable
from crucible.storage.layout import bundle_key, checkpoint_key, log_segment_key, output_key
from crucible.wire.documents.messages import MessageKind


def retention(harness: ControlHarness, store: Store | None = None, **more: Any) -> Retention:
    ports = harness.ports if store is None else replace(harness.ports, store=store)
    return Retention(ports, harness.writer, StoreQuota(ports), harness.duties, **more)


class Dying:
    """A store whose process dies when it comes to delete; everything else is the real one's."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def delete(self, key: str) -> None:
        raise Killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Unlisted:
    """A store that cannot say what it holds."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def list(self, prefix: str) -> Any:
        raise StoreUnreachable("No answer.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class StoreWithHook:
    """A store where something happens right before an object is deleted."""

    def __init__(self, inner: Store, before: Callable[[str], None]) -> None:
        self._inner = inner
        self._before = before

    def delete(self, key: str) -> None:
        self._before(key)
        self._inner.delete(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def checkpoint(harness: ControlHarness, job: str, n: int, *, content: bytes | None = None, **more: Any) -> str:
    """A whole checkpoint of the job's last attempt: object and row."""
    data = content or f"{job} {n}".encode()
    harness.ports.store.put(checkpoint_key(job, sha(data)), data)
    row = {
        "id": harness.ports.ids.new(Prefix.CHECKPOINT),
        "job": job,
        "attempt": (await harness.attempt(job)).id,
        "rank": 0,
        "name": f"step-{n}.pt",
        "form": "file",
        "step": n,
        "size": len(data),
        "sha256": sha(data),
        "stored_at": harness.clock.now(),
    }
    await harness.sql(add_row(t.checkpoints, **{**row, **more}))
    return str(row["id"])


async def kept(harness: ControlHarness, job: str) -> list[int]:
    """Steps whose row says that they are kept."""
    rows = [r for r in await harness.rows(t.checkpoints) if r["job"] == job]
    return [r["step"] for r in rows if r["pruned_at"] is None]


def stored(harness: ControlHarness, prefix: str = "") -> set[str]:
    return {key for key, _ in harness.ports.store.list(prefix)}


async def ended_job(harness: ControlHarness, **more: Any) -> str:
    """A job that ended, with a log, an artifact and two checkpoints."""
    job, runner = await harness.running(**more)
    await runner.log(0, 0, b"hello\n")
    attempt = (await harness.attempt(job)).id
    await harness.agents.put_artifact(attempt, 0, "model.pt", sha(b"weights"), pieces(b"weights"))
    await runner.say(MessageKind.ARTIFACT, path="model.pt", size=7, sha256=sha(b"weights"))
    await checkpoint(harness, job, 1)
    await checkpoint(harness, job, 2)
    await runner.end()
    return job


async def test_checkpoints_that_no_rule_keeps_go_with_their_objects(harness: ControlHarness) -> None:
    job, _ = await harness.running(keep={"latest": 2, "best": 0})
    for n in range(1, 6):
        await checkpoint(harness, job, n)
    await retention(harness).round()
    assert await kept(harness, job) == [4, 5]
    assert len(stored(harness)) == 2
    why = {r["step"]: r["why"] for r in await harness.rows(t.checkpoints)}
    assert why[5] == "the newest"
    assert why[1] == "only the 2 newest are kept"


async def test_a_round_looks_only_at_what_is_new_and_a_new_process_at_all(harness: ControlHarness) -> None:
    job, _ = await harness.running(keep={"latest": 1, "best": 0})
    keeper = retention(harness)
    await checkpoint(harness, job, 1)
    await keeper.round()
    await checkpoint(harness, job, 2)
    await keeper.round()
    assert await kept(harness, job) == [2]
    await keeper.round()
    await retention(harness).round()
    assert await kept(harness, job) == [2]


async def test_what_a_live_attempt_started_from_stays(harness: ControlHarness) -> None:
    job, runner = await harness.running(keep={"latest": 1, "best": 0})
    first = await checkpoint(harness, job, 1)
    await harness.sql(lambda conn: conn.execute(update(t.attempts).values(resume_from=first)).rowcount)
    await checkpoint(harness, job, 2)
    await checkpoint(harness, job, 3)
    await retention(harness).round()
    assert await kept(harness, job) == [1, 3]
    await runner.end()
    await retention(harness).round()
    assert await kept(harness, job) == [3], "the attempt has ended"


async def test_an_object_that_a_kept_checkpoint_shares_stays(harness: ControlHarness) -> None:
    job, _ = await harness.running(keep={"latest": 1, "best": 0})
    await checkpoint(harness, job, 1, content=b"same")
    await checkpoint(harness, job, 2, content=b"same")
    await retention(harness).round()
    assert await kept(harness, job) == [2]
    assert stored(harness) == {checkpoint_key(job, sha(b"same"))}


async def test_a_crash_between_row_and_object_is_finished_by_the_next_round(harness: ControlHarness) -> None:
    job, _ = await harness.running(keep={"latest": 1, "best": 0})
    for n in (1, 2):
        await checkpoint(harness, job, n)
    with pytest.raises(Killed):
        await retention(harness, Dying(harness.ports.store)).round()
    assert await kept(harness, job) == [2], "the row says so already"
    assert len(stored(harness)) == 2, "the object is still there"
    harness.clock.move(3600)
    await retention(harness).round()
    assert len(stored(harness)) == 1


async def test_what_was_pruned_under_a_clock_set_back_is_removed_once_it_is_right_again(
    harness: ControlHarness,
) -> None:
    job, _ = await harness.running(keep={"latest": 1, "best": 0})
    await retention(harness).round()
    harness.clock.move(-3600)
    for n in (1, 2):
        await checkpoint(harness, job, n)
    with pytest.raises(Killed):
        await retention(harness, Dying(harness.ports.store)).round()
    harness.clock.move(5 * 3600)
    await retention(harness).round()
    assert len(stored(harness)) == 1


async def test_a_crash_while_a_job_is_pruned_is_finished_by_the_next_round(harness: ControlHarness) -> None:
    await ended_job(harness)
    harness.clock.move(40 * DAY)
    with pytest.raises(Killed):
        await retention(harness, Dying(harness.ports.store)).prune(older_than=None, dry_run=False)
    assert stored(harness) != set()
    harness.clock.move(3600)
    await retention(harness).round()
    assert stored(harness) == set()


async def test_an_object_is_removed_once_and_not_looked_for_again(harness: ControlHarness) -> None:
    job = await ended_job(harness)
    harness.clock.move(40 * DAY)
    await retention(harness).prune(older_than=None, dry_run=False)
    harness.clock.move(3600)
    await retention(harness).round()
    harness.clock.move(3600)
    harness.ports.store.put(checkpoint_key(job, sha(b"new")), b"new")
    await retention(harness).round()
    assert stored(harness) == {checkpoint_key(job, sha(b"new"))}


async def test_pruning_takes_what_old_jobs_stored_and_leaves_their_history(harness: ControlHarness) -> None:
    old = await ended_job(harness)
    attempt = (await harness.attempt(old)).id
    harness.clock.move(40 * DAY)
    young = await ended_job(harness)
    live, _ = await harness.running()
    await checkpoint(harness, live, 1)

    view = await retention(harness).prune(older_than=30 * DAY, dry_run=False)
    assert (view.jobs, view.checkpoints, view.artifacts, view.logs, view.dry_run) == (1, 2, 1, 1, False)
    assert {item.job for item in view.items} == {old}
    assert not stored(harness, f"jobs/{old}")
    assert output_key(old, attempt, sha(b"weights")) not in stored(harness)
    assert log_segment_key(old, attempt, 0, 0, sha(b"hello\n")) not in stored(harness)
    assert len(stored(harness, f"jobs/{young}")) == 4
    assert len(stored(harness, f"jobs/{live}")) == 1
    jobs = {r["id"]: r for r in await harness.rows(t.jobs)}
    assert jobs[old]["pruned_at"] == harness.clock.now()
    assert jobs[young]["pruned_at"] is jobs[live]["pruned_at"] is None
    assert [r for r in await harness.rows(t.events) if r["job"] == old], "its history stays"
    assert {r["job"] for r in await harness.rows(t.artifacts)} == {young}


async def test_a_dry_run_says_the_same_and_changes_nothing(harness: ControlHarness) -> None:
    await ended_job(harness, keep={"latest": 1, "best": 0})
    before, objects = await harness.rows(t.jobs), stored(harness)
    told = await retention(harness).prune(older_than=30 * DAY, dry_run=True)
    assert (told.jobs, told.checkpoints) == (0, 1), "the rule of a young job"
    harness.clock.move(40 * DAY)
    told = await retention(harness).prune(older_than=None, dry_run=True)
    assert (await harness.rows(t.jobs), stored(harness)) == (before, objects)
    done = await retention(harness).prune(older_than=None, dry_run=False)
    assert told.model_copy(update={"dry_run": False}) == done
    assert told.bytes == 6 + 7 + sum(r["size"] for r in await harness.rows(t.checkpoints))


async def test_jobs_go_by_themselves_only_where_that_is_set(harness: ControlHarness) -> None:
    await ended_job(harness)
    harness.clock.move(40 * DAY)
    await retention(harness).round()
    assert stored(harness) != set()
    await retention(harness, prune_after=30 * DAY).round()
    assert stored(harness) == set()


async def test_a_job_whose_machine_is_not_gone_waits(harness: ControlHarness) -> None:
    job = await ended_job(harness)
    harness.clock.move(40 * DAY)
    owner = f"attempt:{(await harness.attempt(job)).id}"
    await harness.sql(lambda conn: conn.execute(update(t.machines).values(owner=owner)).rowcount)
    assert (await retention(harness).prune(older_than=None, dry_run=False)).jobs == 0
    assert stored(harness) != set()


async def test_bundles_go_once_no_kept_job_uses_them(harness: ControlHarness) -> None:
    used, unused = sha(b"used"), sha(b"unused")
    await harness.bundles.put(OWNER, used, pieces(b"used"))
    await harness.bundles.put(OWNER, unused, pieces(b"unused"))
    await ended_job(harness, bundle=used)
    harness.clock.move(20 * DAY)
    view = await retention(harness).prune(older_than=10 * DAY, dry_run=False)
    assert view.bundles == 2, "the job that used it went too"
    assert stored(harness) == set()
    assert await harness.rows(t.bundles) == []


async def test_a_bundle_of_a_live_job_stays_and_a_young_one_too(harness: ControlHarness) -> None:
    used, young = sha(b"used"), sha(b"young")
    await harness.bundles.put(OWNER, used, pieces(b"used"))
    await harness.submit(bundle=used)
    harness.clock.move(40 * DAY)
    await harness.bundles.put(OWNER, young, pieces(b"young"))
    assert (await retention(harness).prune(older_than=None, dry_run=False)).bundles == 0
    assert stored(harness) == {bundle_key(used), bundle_key(young)}


async def test_a_bundle_whose_removal_was_cut_off_and_that_came_back_stays(harness: ControlHarness) -> None:
    bundle = sha(b"code")
    await harness.bundles.put(OWNER, bundle, pieces(b"code"))
    harness.clock.move(40 * DAY)
    with pytest.raises(Killed):
        await retention(harness, Dying(harness.ports.store)).prune(older_than=None, dry_run=False)
    await harness.bundles.put(OWNER, bundle, pieces(b"code"))
    await retention(harness).round()
    assert stored(harness) == {bundle_key(bundle)}
    assert await harness.bundles.has(OWNER, bundle)


async def test_a_full_store_makes_unused_bundles_go(harness: ControlHarness) -> None:
    await harness.bundles.put(OWNER, sha(b"x" * 100), pieces(b"x" * 100))
    harness.clock.move(2 * 3600)
    room = StoreQuota(harness.ports, QuotaLimits(quota=50))
    assert await room.why_full() is not None
    await Retention(harness.ports, harness.writer, room, harness.duties).round()
    assert stored(harness) == set()
    assert await room.why_full() is None


async def test_nothing_is_removed_after_a_restore_before_it_is_confirmed(harness: ControlHarness) -> None:
    job = await ended_job(harness, keep={"latest": 1, "best": 0})
    harness.clock.move(40 * DAY)
    objects = stored(harness)
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), 0.0))
    keeper = retention(harness, prune_after=DAY)
    await keeper.round()
    with pytest.raises(Conflict):
        await keeper.prune(older_than=None, dry_run=False)
    assert stored(harness) == objects
    assert await kept(harness, job) == [1, 2]
    await harness.sql(lambda conn: restore_hold.confirm(conn, harness.clock.now()))
    await keeper.round()
    assert stored(harness) == set()


async def test_many_jobs_are_thinned_in_one_round(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.control.upkeep.retention.JOBS_AT_ONCE", 2)
    jobs = []
    for _number in range(4):
        job, _ = await harness.running(keep={"latest": 1, "best": 0})
        jobs.append(job)
        await checkpoint(harness, job, 1)
    for job in jobs:
        await checkpoint(harness, job, 2)
    await retention(harness).round()
    assert [await kept(harness, job) for job in jobs] == [[2]] * 4


async def test_a_pruned_job_is_not_reopened(harness: ControlHarness) -> None:
    job = await ended_job(harness)
    harness.clock.move(40 * DAY)
    await retention(harness).prune(older_than=None, dry_run=False)
    with pytest.raises(Conflict) as refused:
        await harness.revival.resume(job, None, None)
    assert "pruned" in refused.value.what
    assert (await harness.revival.rerun(job, None)).job != job


async def put_and_told(harness: ControlHarness, runner: FakeRunner, data: bytes, *, told: bool = True) -> None:
    """A checkpoint by the way it comes: its bytes, then the message."""
    await harness.agents.put_checkpoint(runner.attempt, 0, sha(data), pieces(data))
    if told:
        await tell(runner, data)


async def tell(runner: FakeRunner, data: bytes) -> None:
    about = {"name": "x.pt", "form": "file", "size": len(data), "sha256": sha(data), "step": None, "metric": None}
    await runner.say(MessageKind.CHECKPOINT, **about)


async def pruned_checkpoint(harness: ControlHarness, data: bytes) -> tuple[str, FakeRunner, Retention]:
    """A job whose first checkpoint holds `data` and is not kept any more by its row; its object is still there."""
    job, runner = await harness.running(keep={"latest": 1, "best": 0})
    await put_and_told(harness, runner, data)
    await put_and_told(harness, runner, b"a second")
    keeper = retention(harness)
    await keeper._apply_keep_rules()
    return job, runner, keeper


async def test_bytes_that_came_again_are_kept_for_the_message_that_follows(harness: ControlHarness) -> None:
    """The message comes after the round that removes what was pruned: its checkpoint must be there."""
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    await put_and_told(harness, runner, b"again", told=False)
    await keeper.round()
    await tell(runner, b"again")
    assert checkpoint_key(job, sha(b"again")) in stored(harness)
    await keeper.round()
    assert stored(harness) == {checkpoint_key(job, sha(b"again"))}, "the second is not kept by now"


async def test_a_checkpoint_that_came_again_goes_once_it_is_pruned_again(harness: ControlHarness) -> None:
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    await put_and_told(harness, runner, b"again")
    await put_and_told(harness, runner, b"a third")
    await keeper.round()
    assert stored(harness) == {checkpoint_key(job, sha(b"a third"))}
    assert not [r for r in await harness.rows(t.meta) if r["key"].startswith((gc_marks.ARRIVING, gc_marks.REMOVING))]


async def test_what_another_rank_is_storing_is_not_forgotten_with_the_first_ones_row(harness: ControlHarness) -> None:
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    await harness.add_rank(runner.attempt, 1)
    await harness.agents.put_checkpoint(runner.attempt, 1, sha(b"again"), pieces(b"again"))
    await put_and_told(harness, runner, b"again")
    await put_and_told(harness, runner, b"a third")
    await keeper.round()
    assert checkpoint_key(job, sha(b"again")) in stored(harness)


async def test_bytes_that_are_sent_twice_go_though_the_second_come_after_they_were_removed(
    harness: ControlHarness,
) -> None:
    """A server that stood still meanwhile stores what another has stored, told of, pruned and removed."""
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    key, begun, late = checkpoint_key(job, sha(b"again")), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        begun.set()
        await late.wait()
        yield b"again"

    sending = asyncio.create_task(harness.agents.put_checkpoint(runner.attempt, 0, sha(b"again"), slowly()))
    await begun.wait()
    await put_and_told(harness, runner, b"again")
    await put_and_told(harness, runner, b"a third")
    await keeper.round()
    harness.clock.move(3600.0)
    await keeper.round()
    late.set()
    await sending
    assert key in stored(harness)
    await keeper.round()
    assert stored(harness) == {checkpoint_key(job, sha(b"a third"))}
    assert not [r for r in await harness.rows(t.meta) if r["key"].startswith((gc_marks.ARRIVING, gc_marks.REMOVING))]


async def broken_off() -> AsyncIterator[bytes]:
    yield b"ag"
    raise ConnectionResetError


@pytest.mark.parametrize(
    ("sent", "error"), [(lambda: pieces(b"other"), HashMismatch), (broken_off, ConnectionResetError)]
)
async def test_a_sending_that_failed_keeps_nothing(
    harness: ControlHarness, sent: Callable[[], AsyncIterator[bytes]], error: type[Exception]
) -> None:
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    with pytest.raises(error):
        await harness.agents.put_checkpoint(runner.attempt, 0, sha(b"again"), sent())
    await put_and_told(harness, runner, b"again")
    await put_and_told(harness, runner, b"a third")
    await keeper.round()
    assert stored(harness) == {checkpoint_key(job, sha(b"a third"))}


async def sent_by_one_that_died(harness: ControlHarness) -> tuple[str, Retention]:
    """The job of a pruned checkpoint that came a second time, and that a server was sending when it died."""
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    dies = gc_marks.mark_upload(harness.ports, checkpoint_key(job, sha(b"again")), f"{runner.attempt}:0", 7)
    await dies.__aenter__()
    await put_and_told(harness, runner, b"again")
    await put_and_told(harness, runner, b"a third")
    return job, keeper


async def test_a_sending_that_died_with_its_server_is_over_when_that_is_up_again(harness: ControlHarness) -> None:
    job, keeper = await sent_by_one_that_died(harness)
    await keeper.round()
    assert checkpoint_key(job, sha(b"again")) in stored(harness), "it may still be under way"
    await harness.agents.start()
    await keeper.round()
    assert stored(harness) == {checkpoint_key(job, sha(b"a third"))}


async def test_what_was_on_its_way_goes_though_the_store_is_down_when_it_could(harness: ControlHarness) -> None:
    job, keeper = await sent_by_one_that_died(harness)
    for _ in range(2):
        await keeper.round()
        harness.clock.move(3600.0)
    await harness.agents.start()

    def down(key: str) -> None:
        raise StoreUnreachable("No answer.")

    await retention(harness, StoreWithHook(harness.ports.store, down)).round()
    harness.clock.move(gc_marks.REMOVAL_SECONDS)
    await keeper.round()
    assert stored(harness) == {checkpoint_key(job, sha(b"a third"))}
    assert await harness.read(pending_objects.list_pending) == []


async def test_bytes_whose_sender_died_go_once_nobody_can_mean_them_any_more(harness: ControlHarness) -> None:
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    await put_and_told(harness, runner, b"again", told=False)
    await keeper.round()
    harness.clock.move(gc_marks.ARRIVAL_SECONDS / 2)
    await keeper.round()
    assert checkpoint_key(job, sha(b"again")) in stored(harness)
    harness.clock.move(gc_marks.ARRIVAL_SECONDS)
    await retention(harness).round()
    assert checkpoint_key(job, sha(b"again")) not in stored(harness)
    assert await harness.read(pending_objects.list_pending) == []


async def test_a_row_that_comes_while_a_round_is_under_way_keeps_its_object(harness: ControlHarness) -> None:
    """Looked up as dead, then told of anew: it is asked again before it goes."""
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    left = await harness.read(retention_module._pending_removals)
    await put_and_told(harness, runner, b"again")
    await keeper._remove(left.objects, RemovalResult())
    assert checkpoint_key(job, sha(b"again")) in stored(harness)


async def test_nothing_is_stored_under_a_removal(harness: ControlHarness) -> None:
    """A removal that has begun cannot be called back: whoever stores the same bytes waits until it is over."""
    job, runner, _ = await pruned_checkpoint(harness, b"again")
    key, start = checkpoint_key(job, sha(b"again")), harness.clock.now()
    claimed = await harness.sql(lambda conn: gc_marks.claim_removal(conn, [key], "w2", start))
    assert claimed.free == [key]
    done = await retention(harness).remove_objects()
    assert list(done.failed) == [key], "nobody else removes it meanwhile"
    await put_and_told(harness, runner, b"again")
    assert harness.clock.now() >= start + gc_marks.REMOVAL_SECONDS


async def test_a_removal_that_ended_keeps_nobody_waiting(harness: ControlHarness) -> None:
    job, runner, keeper = await pruned_checkpoint(harness, b"again")
    await keeper.round()
    start = harness.clock.now()
    await put_and_told(harness, runner, b"again")
    assert harness.clock.now() == start
    assert checkpoint_key(job, sha(b"again")) in stored(harness)


async def test_a_bundle_that_comes_again_before_its_object_is_removed_stays(harness: ControlHarness) -> None:
    bundle = sha(b"code")
    await harness.bundles.put(OWNER, bundle, pieces(b"code"))
    harness.clock.move(40 * DAY)
    keeper = retention(harness)
    await keeper._drop_bundles(0.0)
    await gc_marks.announce(harness.ports, bundle_key(bundle), MARK)  # the upload has begun
    await keeper.round()
    assert stored(harness) == {bundle_key(bundle)}
    await harness.bundles.put(OWNER, bundle, pieces(b"code"))
    await keeper.round()
    assert stored(harness) == {bundle_key(bundle)}


async def test_what_cannot_be_removed_is_told_and_stops_nothing_else(harness: ControlHarness) -> None:
    job = await ended_job(harness)
    stuck = checkpoint_key(job, sha(f"{job} 1".encode()))
    harness.clock.move(40 * DAY)

    def refuse(key: str) -> None:
        if key == stuck:
            raise StoreDenied("It is locked.")

    broken = retention(harness, StoreWithHook(harness.ports.store, refuse))
    view = await broken.prune(older_than=None, dry_run=False)
    assert view.failed == (UnprunedView(key=stuck, why=str(StoreDenied("It is locked."))),)
    assert stored(harness) == {stuck}
    harness.clock.move(3600)
    await broken.round()
    assert stored(harness) == {stuck}
    harness.clock.move(3600)
    await retention(harness).round()
    assert stored(harness) == set(), "rounds come back to it until it is gone"


async def test_a_store_that_cannot_be_listed_fails_one_job_and_not_the_round(harness: ControlHarness) -> None:
    job = await ended_job(harness)
    harness.clock.move(40 * DAY)
    view = await retention(harness, Unlisted(harness.ports.store)).prune(older_than=None, dry_run=False)
    assert [item.key for item in view.failed] == [f"jobs/{job}"]
    harness.clock.move(3600)
    await retention(harness).round()
    assert stored(harness) == set()


async def test_a_process_that_died_while_it_removed_something_keeps_nobody_waiting(harness: ControlHarness) -> None:
    job, runner, _ = await pruned_checkpoint(harness, b"again")
    with pytest.raises(Killed):
        await retention(harness, Dying(harness.ports.store)).remove_objects()
    await retention(harness).remove_objects()
    before = harness.clock.now()
    await put_and_told(harness, runner, b"again")
    assert harness.clock.now() == before
    assert checkpoint_key(job, sha(b"again")) in stored(harness)


async def test_old_marks_are_forgotten(harness: ControlHarness) -> None:
    _, runner, keeper = await pruned_checkpoint(harness, b"again")
    await put_and_told(harness, runner, b"never told of", told=False)
    harness.clock.move(gc_marks.ARRIVAL_SECONDS + 1)
    await keeper.round()
    assert not [r for r in await harness.rows(t.meta) if r["key"].startswith(gc_marks.ARRIVING)]
