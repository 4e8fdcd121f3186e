from __future__ import annotations

import json

import pytest
from tests.control.harness import ControlHarness

from crucible import __version__
from crucible.control.db import schema as t
from crucible.core.lifecycle import JobState
from crucible.wire.documents.messages import MessageKind


async def notes(harness: ControlHarness) -> list[str]:
    return [json.loads(e["data"])["text"] for e in await harness.rows(t.events) if e["type"] == "note"]


async def test_an_agent_of_another_version_is_noted_and_its_job_goes_on(harness: ControlHarness) -> None:
    job = await harness.submit()
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=7, agent="99.0.0", novelty={"never": "heard of"})
    (note,) = await notes(harness)
    assert "99.0.0" in note
    assert __version__ in note
    await runner.end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


@pytest.mark.parametrize("said", [{"agent": __version__}, {}, {"agent": None}, {"agent": "nonsense"}])
async def test_there_is_nothing_to_note_about_our_own(harness: ControlHarness, said: dict[str, object]) -> None:
    job = await harness.submit()
    await harness.host_up()
    await (await harness.runner(job)).say(MessageKind.STARTED, pid=7, **said)
    assert await notes(harness) == []
