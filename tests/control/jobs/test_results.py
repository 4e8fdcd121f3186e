from __future__ import annotations

import json

import pytest
from tests.control.world import Rig, service

from crucible.control.db import schema as t
from crucible.core.job.job_filter import JobFilter
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.views.jobs import ResultView
from crucible.wire.documents.messages import MessageKind


async def test_a_result_is_part_of_the_job(rig: Rig) -> None:
    job, runner = await rig.running()
    assert (await service(rig).jobs.details(OWNER, job)).result is None
    await runner.say(MessageKind.RESULT, kind="inference", value={"label": "cat", "p": 0.9})
    await runner.end()
    view = await service(rig).jobs.details(OWNER, job)
    assert view.result == ResultView(kind="inference", value={"label": "cat", "p": 0.9}, attempt=1)
    assert view.status == "completed"


async def test_told_again_the_later_one_stays(rig: Rig) -> None:
    job, runner = await rig.running()
    await runner.say(MessageKind.RESULT, kind="train", value=1)
    await runner.say(MessageKind.RESULT, kind="train", value=2)
    assert (await service(rig).jobs.details(OWNER, job)).result == ResultView(kind="train", value=2, attempt=1)
    assert len(await rig.rows(t.results)) == 1


async def test_lists_of_jobs_do_not_carry_results(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.say(MessageKind.RESULT, kind="train", value="x" * 60_000)
    page = await service(rig).jobs.list_jobs(OWNER, JobFilter(), limit=10, cursor=None)
    assert len(page.model_dump_json()) < 10_000


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "benchmark", "value": 1},
        {"kind": "guess", "value": 1},
        {"kind": "value", "value": "x" * 70_000},
        {"kind": ["value"], "value": 1},
    ],
)
async def test_what_is_no_result_is_noted_and_the_job_goes_on(rig: Rig, data: dict[str, object]) -> None:
    job, runner = await rig.running()
    await runner.say(MessageKind.RESULT, **data)
    await runner.end()
    assert await rig.rows(t.results) == []
    notes = [json.loads(e["data"])["text"] for e in await rig.rows(t.events) if e["type"] == "note"]
    assert len(notes) == 1
    assert "a result message could not be read" in notes[0]
    assert (await rig.world(job)).job.state is JobState.COMPLETED
