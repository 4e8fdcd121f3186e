from __future__ import annotations

import json

import pytest
from tests.control.harness import ControlHarness, service

from crucible.control.db import schema as t
from crucible.core.job.job_filter import JobFilter
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.views.jobs import ResultView
from crucible.wire.documents.messages import MessageKind


async def test_a_result_is_part_of_the_job(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    assert (await service(harness).jobs.details(OWNER, job)).result is None
    await runner.say(MessageKind.RESULT, kind="inference", value={"label": "cat", "p": 0.9})
    await runner.end()
    view = await service(harness).jobs.details(OWNER, job)
    assert view.result == ResultView(kind="inference", value={"label": "cat", "p": 0.9}, attempt=1)
    assert view.status == "completed"


async def test_told_again_the_later_one_stays(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.RESULT, kind="train", value=1)
    await runner.say(MessageKind.RESULT, kind="train", value=2)
    assert (await service(harness).jobs.details(OWNER, job)).result == ResultView(kind="train", value=2, attempt=1)
    assert len(await harness.rows(t.results)) == 1


async def test_lists_of_jobs_do_not_carry_results(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.say(MessageKind.RESULT, kind="train", value="x" * 60_000)
    page = await service(harness).jobs.list_jobs(OWNER, JobFilter(), limit=10, cursor=None)
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
async def test_what_is_no_result_is_noted_and_the_job_goes_on(harness: ControlHarness, data: dict[str, object]) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.RESULT, **data)
    await runner.end()
    assert await harness.rows(t.results) == []
    notes = [json.loads(e["data"])["text"] for e in await harness.rows(t.events) if e["type"] == "note"]
    assert len(notes) == 1
    assert "a result message could not be read" in notes[0]
    assert (await harness.world(job)).job.state is JobState.COMPLETED
