from __future__ import annotations

import json

import pytest
from tests.control.world import Rig

from crucible import __version__
from crucible.control.db import schema as t
from crucible.core.lifecycle import JobState
from crucible.wire.documents.messages import MessageKind


async def notes(rig: Rig) -> list[str]:
    return [json.loads(e["data"])["text"] for e in await rig.rows(t.events) if e["type"] == "note"]


async def test_an_agent_of_another_version_is_noted_and_its_job_goes_on(rig: Rig) -> None:
    job = await rig.submit()
    await rig.host_up()
    runner = await rig.runner(job)
    await runner.say(MessageKind.STARTED, pid=7, agent="99.0.0", novelty={"never": "heard of"})
    (note,) = await notes(rig)
    assert "99.0.0" in note
    assert __version__ in note
    await runner.end()
    assert (await rig.world(job)).job.state is JobState.COMPLETED


@pytest.mark.parametrize("said", [{"agent": __version__}, {}, {"agent": None}, {"agent": "nonsense"}])
async def test_there_is_nothing_to_note_about_our_own(rig: Rig, said: dict[str, object]) -> None:
    job = await rig.submit()
    await rig.host_up()
    await (await rig.runner(job)).say(MessageKind.STARTED, pid=7, **said)
    assert await notes(rig) == []
