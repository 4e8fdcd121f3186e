from __future__ import annotations

from typing import Any

import pytest
from tests.control.harness import ControlHarness, FakeRunner, add_row, service

from crucible.control.db import schema as t
from crucible.control.objects import checkpoints
from crucible.core.errors import Conflict, NotFound
from crucible.core.lifecycle import Reason
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.core.views.jobs import CheckpointView
from crucible.storage.layout import checkpoint_key
from crucible.wire.documents.messages import MessageKind


def told(number: int, **more: Any) -> dict[str, Any]:
    given = {"name": f"step-{number:08d}.pt", "form": "file", "size": 100 + number, "sha256": f"{number:064x}"}
    return {**given, "step": number, "metric": 1.0 / number, **more}


async def say(runner: FakeRunner, *steps: int) -> None:
    for step in steps:
        await runner.say(MessageKind.CHECKPOINT, **told(step))


async def list_of(harness: ControlHarness, job: str) -> tuple[CheckpointView, ...]:
    return (await service(harness).checkpoints.list_checkpoints(OWNER, job)).items


async def start_of(harness: ControlHarness, job: str) -> int | None:
    """The step that the next attempt would start from."""
    world = await harness.world(job)
    chosen = await harness.read(lambda conn: checkpoints.next_start(conn, world))
    rows = {row["id"]: row["step"] for row in await harness.rows(t.checkpoints)}
    return rows[chosen] if chosen else None


async def test_what_was_stored_is_listed_newest_first(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await say(runner, 10, 20)
    listed = await list_of(harness, job)
    assert [(c.step, c.latest, c.best, c.kept) for c in listed] == [
        (20, True, True, True),
        (10, False, False, True),
    ]
    assert (await service(harness).jobs.view(OWNER, job)).checkpoint.step == 20


async def test_told_twice_is_noted_once_and_a_new_content_again(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    same = told(10)
    await runner.say(MessageKind.CHECKPOINT, **same)
    await runner.say(MessageKind.CHECKPOINT, **same)
    await runner.say(MessageKind.CHECKPOINT, **{**same, "sha256": "f" * 64})
    assert len(await list_of(harness, job)) == 2


@pytest.mark.parametrize(
    "wrong",
    [{"form": "link"}, {"sha256": "../x"}, {"name": "../../x"}, {"size": -1}, {"step": 1.5}, {"size": 2**70}],
)
async def test_what_makes_no_sense_is_noted_and_not_listed(harness: ControlHarness, wrong: dict[str, Any]) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.CHECKPOINT, **told(10, **wrong))
    assert await list_of(harness, job) == ()


async def test_a_metric_that_is_no_number_is_left_out(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.CHECKPOINT, **told(10, metric="nan"))
    assert [c.metric for c in await list_of(harness, job)] == [None]


async def test_the_next_attempt_starts_from_the_newest(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await say(runner, 10, 20)
    await runner.send([runner.message(MessageKind.EXITED, cause="runner_lost"), runner.message(MessageKind.ENDED)])
    harness.clock.move(10)
    await harness.place()
    attempt = await harness.attempt(job)
    assert attempt.number == 2
    assert (await harness.world(job)).attempts[0].reason is Reason.RUNNER_LOST
    shown = (await service(harness).jobs.view(OWNER, job)).attempts[1].resume_from
    assert shown.step == 20


async def test_after_a_choice_only_newer_ones_count(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await say(runner, 10, 20, 30)
    await runner.end(code=1)
    control = service(harness)
    await harness.duties.renew(harness.ports.db, harness.clock)
    await control.jobs.resume(OWNER, job, Resumption(checkpoint="step-00000010.pt"))
    assert await start_of(harness, job) == 10
    await harness.place()
    again = await harness.runner(job)
    assert again.attempt != runner.attempt
    await say(again, 11)
    assert await start_of(harness, job) == 11


async def test_names_people_use(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await say(runner, 10, 20)
    await runner.say(MessageKind.CHECKPOINT, **told(30, metric=9.0))
    control = service(harness)
    by_name = {name: (await control.checkpoints.file(OWNER, job, name))[0].step for name in ("latest", "best")}
    assert by_name == {"latest": 30, "best": 20}
    view, file = await control.checkpoints.file(OWNER, job, "step-00000010.pt")
    assert (view.step, file.size, file.sha256) == (10, 110, f"{10:064x}")
    assert (await control.checkpoints.file(OWNER, job, view.short))[0] == view
    with pytest.raises(NotFound, match="no checkpoint 'step-99'"):
        await control.checkpoints.file(OWNER, job, "step-99")


async def test_an_exact_name_beats_an_ending_and_two_endings_are_a_conflict() -> None:
    views = [
        CheckpointView(id=f"ckp-{n}", short=n, name=name, latest=n == "11aaa")
        for n, name in (("11aaa", "x"), ("22aaa", "y"), ("33bbb", "aaa"), ("44ccc", "latest"))
    ]
    assert checkpoints.find_checkpoint(views, "aaa", "job-1").name == "aaa"
    assert checkpoints.find_checkpoint(views, "latest", "job-1").id == "ckp-44ccc"
    assert checkpoints.find_checkpoint(views, "3bbb", "job-1").id == "ckp-33bbb"
    with pytest.raises(Conflict):
        checkpoints.find_checkpoint(views[:2], "aaa", "job-1")


async def test_the_newest_is_of_the_newest_attempt_however_late_the_others_come(harness: ControlHarness) -> None:
    job, first = await harness.running()
    await say(first, 10)
    await first.send([first.message(MessageKind.EXITED, cause="runner_lost"), first.message(MessageKind.ENDED)])
    harness.clock.move(10)
    await harness.place()
    await say(await harness.runner(job), 11)
    row = (await harness.rows(t.checkpoints))[0]  # as a server of 0.1.0 took it late
    await harness.sql(add_row(t.checkpoints, **{**row, "cursor": 99, "id": "ckp-late", "step": 12}))
    assert [c.step for c in await list_of(harness, job) if c.latest] == [11]
    assert await start_of(harness, job) == 11


async def test_a_new_job_may_start_from_another_jobs_checkpoint(harness: ControlHarness) -> None:
    first, runner = await harness.running()
    await say(runner, 10)
    (made,) = await list_of(harness, first)
    second = await harness.submit(resume_from=made.short)
    assert await start_of(harness, second) == 10
    attempt = await harness.attempt(second)
    assert attempt.resume_from == made.id
    file = await harness.agents.open_checkpoint(attempt.id, 0, made.sha256)
    assert file.key == checkpoint_key(first, made.sha256)


async def test_a_job_reads_no_other_jobs_checkpoint(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await say(runner, 10)
    other = await harness.attempt(await harness.submit())
    with pytest.raises(NotFound):
        await harness.agents.open_checkpoint(other.id, 0, f"{10:064x}")


@pytest.mark.parametrize("ref", ["ckp-000000", "x", "%"])
async def test_an_unknown_checkpoint_to_start_from_is_refused(harness: ControlHarness, ref: str) -> None:
    with pytest.raises(NotFound):
        await harness.submit(resume_from=ref)
