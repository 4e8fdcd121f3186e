"""Jobs whose place was named are foretold too, once they are submitted, and nobody waits for it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.clouds import FakeCloud
from tests.control.test_predictions import REAL, TRAIN, items, plan
from tests.control.world import FakeRunner, Rig, give_back, job_spec, make_rig, pieces, service, sha

from crucible.control import foresight
from crucible.control.db import schema as t
from crucible.control.foresight import is_foreseen
from crucible.control.resources.jobs import Submitted
from crucible.control.service import Control
from crucible.core.people import OWNER
from crucible.wire.archive import Entry, pack
from crucible.wire.messages import Kind

RUN = ("{python}", "main.py")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await make_rig(tmp_path, FakeCloud(capabilities=REAL))
    yield rig
    await give_back(rig.ports.db)


async def serving(rig: Rig) -> Control:
    """A server that knows what its places offer."""
    control = service(rig)
    await control._parts.places.refresh()
    return control


@pytest.fixture
async def control(rig: Rig) -> Control:
    return await serving(rig)


async def bundled(control: Control, code: str = TRAIN) -> str:
    packed = io.BytesIO()
    pack([Entry.of_bytes("main.py", code.encode())], packed)
    name = sha(packed.getvalue())
    await control.bundles.put(OWNER, name, pieces(packed.getvalue()))
    return name


async def submit(control: Control, **spec: Any) -> str:
    given = {"command": RUN, "backend": "local", "bundle": await bundled(control), **spec}
    return str((await control.jobs.submit(OWNER, job_spec(**given), None)).view["id"])


async def looked(control: Control) -> None:
    await control._parts.foresight.rest()


async def test_a_job_at_a_named_place_is_foretold_as_its_plan_would_have(rig: Rig, control: Control) -> None:
    before = await plan(rig, command=("python", "main.py"))
    job = await submit(control)
    looking = control._parts.foresight._looking
    assert looking is not None
    assert not looking.done(), "nobody waits for it"
    await looked(control)
    (item,) = await items(rig)
    assert (item["job"], item["backend"], item["why_not"]) == (job, "local", "it has not ended")
    assert item["predicted_seconds"] == before["chosen"]["seconds"]


async def test_what_it_took_teaches(rig: Rig, control: Control) -> None:
    job = await submit(control)
    await looked(control)
    await rig.place()
    await rig.host_up()
    runner = FakeRunner(control.agents, (await rig.attempt(job)).id)
    await runner.say(Kind.STARTED, pid=7)
    rig.clock.time += 5000
    await runner.end()
    (item,) = await items(rig)
    assert (item["took_seconds"], item["why_not"]) == (5000.0, None)
    learned = (await plan(rig, command=("python", "main.py")))["learned"]
    assert (learned["jobs"], learned["same_program"]) == (1, 1), "a plan's text and a bundle are the same program"


async def test_a_full_place_is_foretold_of_too(rig: Rig, control: Control) -> None:
    jobs = [await submit(control, name=f"number {number}") for number in range(3)]
    await looked(control)
    assert sorted(item["job"] for item in await items(rig)) == sorted(jobs)


async def test_a_rerun_and_many_at_once_are_foretold(rig: Rig, control: Control) -> None:
    first = await submit(control)
    again = await control.jobs.rerun(OWNER, first, None)
    spec = job_spec(command=RUN, backend="local", bundle=await bundled(control))
    many = await control.jobs.submit_many(
        OWNER, [(spec, "key-1"), (spec, "key-1"), (spec.model_copy(update={"tier": "x"}), None)]
    )
    await looked(control)
    ids = {first, str(again.view["id"]), str(many[0].view["id"])}  # type: ignore[union-attr]
    assert {item["job"] for item in await items(rig)} == ids


async def test_a_job_that_has_ended_meanwhile_is_not_foretold(rig: Rig, control: Control) -> None:
    job = await submit(control, backend=None)
    await control.jobs.cancel(OWNER, job)
    spec = job_spec(command=RUN, backend="local", bundle=await bundled(control))
    control._parts.foresight.submitted(job, spec)
    await looked(control)
    assert await rig.count(t.predictions) == 0


@pytest.mark.parametrize("code", ["print(1)", "import (", ""])
async def test_a_program_of_which_nothing_can_be_said(rig: Rig, control: Control, code: str) -> None:
    await submit(control, bundle=await bundled(control, code))
    await looked(control)
    assert await rig.count(t.predictions) == 0


async def test_a_bundle_that_is_none_harms_nobody(rig: Rig, control: Control) -> None:
    await control.bundles.put(OWNER, sha(b"no archive"), pieces(b"no archive"))
    await submit(control, bundle=sha(b"no archive"))
    job = await submit(control)
    await looked(control)
    assert [item["job"] for item in await items(rig)] == [job]


async def test_of_too_many_the_newest_are_looked_at(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foresight, "MOST", 2)
    control = await serving(rig)
    spec = job_spec(command=RUN, backend="local", bundle=await bundled(control))
    done = await control.jobs.submit_many(OWNER, [(spec, None)] * 4)
    jobs = [one.view["id"] for one in done if isinstance(one, Submitted)]
    await looked(control)
    assert [item["job"] for item in await items(rig)] == [jobs[3], jobs[2]]


async def test_a_server_that_stops_leaves_it(rig: Rig, control: Control) -> None:
    await submit(control)
    await control._parts.foresight.stop()
    assert await rig.count(t.predictions) == 0


@pytest.mark.parametrize(
    ("changes", "foreseen"),
    [
        ({}, True),
        ({"fallback": ("local",)}, True),
        ({"backend": None}, False),
        ({"plan": "told.before"}, False),
        ({"resume_from": "ckp-1"}, False),
        ({"bundle": None}, False),
    ],
)
def test_which_jobs_are_looked_at(changes: dict[str, Any], foreseen: bool) -> None:
    spec = job_spec(**{"command": RUN, "backend": "local", "bundle": "0" * 64, **changes})
    assert is_foreseen(spec) is foreseen
