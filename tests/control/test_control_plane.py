from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from sqlalchemy import Connection
from tests.control.fakes import DEPLOYMENT, Gate
from tests.control.harness import ControlHarness, FakeRunner, job_spec, pieces, secret, service, sha, with_calls

from crucible.backends.base import Seen
from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.db.port import Db
from crucible.control.runtime import background
from crucible.control.telemetry.feed import Hint
from crucible.control.upkeep import restore_hold
from crucible.core.errors import Conflict, NoCapacity, NotFound, Unreachable
from crucible.core.job.job_filter import JobFilter
from crucible.core.lifecycle import JobState, MachineState
from crucible.core.people.identity import OWNER
from crucible.core.views.server import ConfirmedView
from crucible.wire.documents.messages import MessageKind

T = TypeVar("T")


@pytest.fixture
async def control(harness: ControlHarness) -> AsyncIterator[ControlPlane]:
    """Started: its loops go on whenever a test waits for something."""
    control = service(harness)
    await control.start()
    yield control
    await control.stop()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.001)


class OnlyWrites:
    """A database that nobody may read besides what he writes."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def write(self, fn: Callable[[Connection], T]) -> T:
        return await self._db.write(fn)

    async def read(self, fn: Callable[[Connection], T]) -> T:
        raise AssertionError("the job was there when it was stored")


async def test_the_answer_to_a_submission_is_read_where_it_is_stored(harness: ControlHarness) -> None:
    ports = replace(harness.ports, db=OnlyWrites(harness.ports.db))  # type: ignore[arg-type]
    submitted = await ControlPlane(ports, harness.backends, harness.deployment).jobs.submit(
        OWNER, job_spec(name="mnist"), None
    )
    assert submitted.view == await service(harness).jobs.view(OWNER, submitted.view.id)


async def test_a_job_from_submission_to_its_outputs(harness: ControlHarness, control: ControlPlane) -> None:
    submitted = await control.jobs.submit(OWNER, job_spec(name="mnist"), "key")
    job = submitted.view.id
    assert submitted.created
    assert submitted.view.phase == "provisioning"
    await until(lambda: bool(harness.backend.made))
    machine = (await harness.machine()).id
    native = f"i-{machine}"
    assert await control.agents.claim(machine, secret("nonce", machine).decode(), native)
    desired = await control.agents.desired(machine, 0, 0)
    assert desired is not None
    (assignment,) = desired.assignments
    runner = FakeRunner(control.agents, assignment.attempt)
    await runner.say(MessageKind.STARTED, pid=7)
    await runner.log(0, 0, b"epoch 1\nepoch 2\n")
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 2]]})
    await control.agents.put_artifact(assignment.attempt, 0, "model.pt", sha(b"abc"), pieces(b"abc"))
    await runner.say(MessageKind.ARTIFACT, path="model.pt", size=3, sha256=sha(b"abc"))
    await runner.end()
    view = await control.jobs.details(OWNER, "last")
    assert (view.status, view.exit_code, view.execution_id) == ("completed", 0, f"local-{job}-7")
    assert view.recent_logs == ("epoch 1", "epoch 2")
    assert view.metrics == {"loss": 0.5}
    found = await control.outputs.artifact(OWNER, job, "model.pt")
    assert (found.size, control.store.get(found.key)) == (3, b"abc")
    page = await control.outputs.logs(OWNER, job, attempt=None, offset=0, limit=100, since=None)
    assert (page.data, page.complete) == (b"epoch 1\nepoch 2\n", True)
    assert (await control.outputs.metrics(OWNER, job, series=["loss"], points=10)).attempt == 1
    events = (await control.outputs.events(OWNER, job, after=0, limit=100)).items
    assert [e.n for e in events] == list(range(1, len(events) + 1))


async def test_the_same_submission_twice_is_one_job(control: ControlPlane) -> None:
    first = await control.jobs.submit(OWNER, job_spec(), "key")
    again = await control.jobs.submit(OWNER, job_spec(), "key")
    assert (again.view.id, again.created) == (first.view.id, False)
    with pytest.raises(Conflict):
        await control.jobs.submit(OWNER, job_spec(name="other"), "key")
    with pytest.raises(NoCapacity):
        await control.jobs.submit(OWNER, job_spec(cpus=99), None)


async def test_cancelling_a_waiting_job_ends_it_and_lets_the_next_go(
    harness: ControlHarness, control: ControlPlane
) -> None:
    await control.jobs.submit(OWNER, job_spec(cpus=2), None)
    large = (await control.jobs.submit(OWNER, job_spec(cpus=4), None)).view.id
    small = (await control.jobs.submit(OWNER, job_spec(cpus=2), None)).view.id
    view, changed = await control.jobs.cancel(OWNER, large)
    assert (view.status, changed) == ("cancelled", True)
    await harness.place()
    assert (await harness.world(small)).live is not None
    assert (await control.jobs.cancel(OWNER, large))[1] is False


async def test_cancelling_before_a_host_has_come_ends_it_and_lets_the_next_go(
    harness: ControlHarness, control: ControlPlane
) -> None:
    job = (await control.jobs.submit(OWNER, job_spec(cpus=4), None)).view.id
    waiting = (await control.jobs.submit(OWNER, job_spec(cpus=4), None)).view.id
    view, changed = await control.jobs.cancel(OWNER, job)
    assert (view.status, changed) == ("cancelled", True)
    await harness.place()
    assert (await harness.world(waiting)).live is not None


async def test_cancelling_a_running_job_asks_first(harness: ControlHarness, control: ControlPlane) -> None:
    job, runner = await harness.running()
    view, changed = await control.jobs.cancel(OWNER, job)
    assert (view.phase, view.desired, changed) == ("stopping", "cancel", True)
    assert (await control.jobs.cancel(OWNER, job))[1] is False
    await runner.say(MessageKind.EXITED, signal=15, cause="stopped")
    await runner.say(MessageKind.ENDED)
    view = await control.jobs.details(OWNER, job)
    assert (view.status, view.signal) == ("cancelled", 15)


async def test_what_is_not_there(control: ControlPlane) -> None:
    for ask in (control.jobs.details, control.jobs.cancel, control.outputs.artifacts):
        with pytest.raises(NotFound):
            await ask(OWNER, "zzzzzz")
    job = (await control.jobs.submit(OWNER, job_spec(), None)).view.id
    with pytest.raises(NotFound, match="no artifact"):
        await control.outputs.artifact(OWNER, job, "model.pt")


async def test_lists_and_status(harness: ControlHarness, control: ControlPlane) -> None:
    await control.jobs.submit(OWNER, job_spec(), None)
    page = await control.jobs.list_jobs(OWNER, JobFilter(active=True), limit=10, cursor=None)
    assert len(page.items) == 1
    assert [b.name for b in (await control.backends.list_backends()).items] == ["local"]
    assert [m.state for m in (await control.machines.list_machines(OWNER)).items] in (["intended"], ["creating"])
    status = await control.maintenance.status(OWNER)
    assert (status.deployment, status.counts.queued) == (DEPLOYMENT, 1)


async def test_bundles_through_the_facade(control: ControlPlane) -> None:
    data = b"an archive"
    assert not await control.bundles.has(OWNER, sha(data))
    assert await control.bundles.put(OWNER, sha(data), pieces(data))
    assert await control.bundles.has(OWNER, sha(data))


async def test_a_watcher_hears_what_happens(harness: ControlHarness, control: ControlPlane) -> None:
    async with control.jobs.watch(None) as watch:
        await control.jobs.submit(OWNER, job_spec(), None)
        assert await watch.changed(0) == {Hint.EVENT}


async def test_recent_lines_are_the_newest_that_are_known(harness: ControlHarness, control: ControlPlane) -> None:
    job, runner = await harness.running()
    runner = FakeRunner(control.agents, runner.attempt)
    runner.n = 1
    stored = b"".join(b"line %04d\n" % i for i in range(1000))
    await runner.log(0, 0, stored)
    await control.agents.put_tail(runner.attempt, 0, len(stored), b"now\n")
    recent = (await control.jobs.details(OWNER, job)).recent_logs
    assert recent[-2:] == ("line 0999", "now")
    assert len(recent) == 20


# Starting and stopping


async def test_the_loops_launch_what_is_submitted(harness: ControlHarness) -> None:
    control = service(harness)
    assert not control.ready()
    await control.start()
    assert control.ready()
    await control.jobs.submit(OWNER, job_spec(), None)
    await until(lambda: bool(harness.backend.made))
    await control.stop()
    assert not control.ready()
    assert "closed" in harness.calls.lanes


async def test_a_start_finds_what_went_away_while_we_were_down(harness: ControlHarness) -> None:
    await harness.running()
    machine = (await harness.machine()).id
    harness.backend.show(machine, Seen.GONE)
    control = service(harness)
    await control.start()
    assert (await harness.machine(machine)).state is MachineState.GONE
    await control.stop()


async def test_a_start_is_not_stopped_by_a_place_that_is_down(two_backends: ControlHarness) -> None:
    two_backends.backends["ssh"].down = Unreachable("No answer.")
    control = service(two_backends)
    await control.start()
    assert control.ready()
    await control.stop()


async def test_a_start_does_not_wait_for_a_place_that_hangs(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "FIRST_POLL_SECONDS", 0.01)
    job = await harness.submit()
    control = service(with_calls(harness, Gate("local")))
    await control.start()
    assert control.ready()
    assert (await control.jobs.view(OWNER, job)).id == job
    await control.stop()


async def test_a_stop_gives_back_idle_machines_and_leaves_busy_ones(two_backends: ControlHarness) -> None:
    harness = two_backends
    _, runner = await harness.running()
    await runner.end()
    await harness.submit(backend="ssh")
    await harness.performer.perform_due()
    control = service(harness)
    await control.start()
    await control.stop()
    assert [m.seen for m in harness.backend.made.values()] == [Seen.GONE]
    assert [m.seen for m in harness.backends["ssh"].made.values()] == [Seen.UP]


async def test_duties_are_free_after_a_stop(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    control = service(harness)
    await control.start()
    until_times: list[float] = []

    async def close() -> None:
        until_times.extend(r["until"] for r in await harness.rows(t.roles))

    monkeypatch.setattr(harness.ports.db, "close", close)
    await control.stop()
    assert set(until_times) == {0.0}


async def test_a_crash_after_submission_loses_nothing(harness: ControlHarness) -> None:
    """The process dies after the commit: the next one performs the launch."""
    job = await harness.submit()
    control = service(harness)
    await control.start()
    await until(lambda: bool(harness.backend.made))
    world = await harness.world(job)
    assert world.job.state is JobState.PROVISIONING
    await control.stop()


async def test_a_confirmed_restore_is_told_as_the_offline_command_tells_it(
    harness: ControlHarness, control: ControlPlane
) -> None:
    assert await control.maintenance.confirm_restore(OWNER) == ConfirmedView(
        confirmed=False, restored_at=None, effects=0
    )
    await harness.sql(lambda conn: restore_hold.mark_restored(conn, harness.clock.now(), 0.0))
    told = await control.maintenance.confirm_restore(OWNER)
    assert (told.confirmed, told.effects) == (True, 0)
    assert told.restored_at is not None
