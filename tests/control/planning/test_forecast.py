"""Every job is planned once it is submitted, and nobody waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from tests.control.clouds import FakeCloud
from tests.control.harness import (
    ControlHarness,
    FakeRunner,
    give_back,
    job_spec,
    make_harness,
    other_worker,
    pieces,
    service,
    sha,
)
from tests.control.planning.test_accuracy import REAL, RUN, bundled, items, plan, planned, submitted

from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.jobs.views import iso
from crucible.control.planning.forecast import DUE, LANE, MAX_ATTEMPTS, MAX_NAME, MAX_OFFERS, MAX_TEXT, RETRY_SECONDS
from crucible.control.resources.plans import Plans
from crucible.core.compute.resources import GiB
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.routing.corrections import Forecast, Similarity
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.views.plans import CandidatesView
from crucible.wire.documents.messages import MessageKind


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, FakeCloud(capabilities=REAL))
    yield harness
    await give_back(harness.ports.db)


@pytest.fixture
def control(harness: ControlHarness) -> ControlPlane:
    return service(harness)


async def stored(harness: ControlHarness, job: str) -> Any:
    return (await service(harness).jobs.details(OWNER, job)).plan


async def test_a_job_is_predicted_as_its_plan_would_have(harness: ControlHarness) -> None:
    before = await plan(harness, command=("python", "main.py"))
    job = await harness.submit(command=RUN, backend="local", bundle=await bundled(harness))
    await harness.services.forecasts.round()
    assert await stored(harness, job) is None, "nobody waits for it"
    await planned(harness)
    (item,) = await items(harness)
    assert (item["job"], item["backend"], item["why_not"]) == (job, "local", "it has not ended")
    assert item["predicted_seconds"] == before["chosen"]["seconds"]


async def test_names_of_framework_and_gpu_are_cut(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Plans.plan_job

    async def with_long_names(self: Plans, request: PlanRequest) -> tuple[CandidatesView, Forecast | None]:
        found, forecast = await real(self, request)
        assert forecast is not None
        return found, replace(forecast, similarity=Similarity("f" * 150, "g" * 150, forecast.similarity.script))

    monkeypatch.setattr(Plans, "plan_job", with_long_names)
    await submitted(harness)
    (row,) = await harness.rows(t.predictions)
    assert (row["framework"], row["gpu"]) == ("f" * MAX_NAME, "g" * MAX_NAME)


async def test_the_plan_is_kept_with_what_was_recommended_and_rejected(harness: ControlHarness) -> None:
    before = await plan(harness, command=("python", "main.py"))
    found = await stored(harness, await submitted(harness))
    assert found is not None
    assert (found.why, found.offers_count) == (None, 1)
    assert found.chosen is not None
    assert found.chosen.seconds == before["chosen"]["seconds"]
    assert found.offers == (found.chosen,)
    assert found.made_at is not None
    assert {offer.backend: offer.why for offer in found.rejected} == {
        "cloud": "is not on local, the only backend allowed"
    }


OFFER = {
    "backend": "local",
    "region": "here",
    "instance_type": "this computer",
    "capacity": {
        "cpus": 4.0, "memory_bytes": 16 * GiB, "gpus": [0, 1], "gpu_memory_bytes": 8 * GiB, "gpu_name": "T4",
    },
    "market": "on_demand",
    "rate_micros_per_hour": 0,
    "billing": {"granularity": 1, "minimum": 0},
    "availability": "available",
    "wait_seconds": 0.0,
    "startup_seconds": 0.0,
    "dated": "",
    "runnable": True,
    "why": None,
    "hourly_usd": 0.0,
    "total_micros": None,
    "total_usd": None,
    "eta_seconds": None,
    "seconds": None,
    "transfer_seconds": 0.0,
    "lost_seconds": None,
    "machine_micros": None,
    "egress_micros": 0,
    "storage_micros": None,
    "confidence": "low",
    "score": 1.0,
    "ceiling_micros_per_hour": 0,
    "fit": "no GPU needed",
    "pros": ["free", "starts within a minute"],
    "cons": ["its runtime is unknown, so the price is per hour"],
    "simulated": False,
    "most_micros": 0,
    "paid_seconds": None,
}  # fmt: skip
REJECTED = {
    "backend": "cloud",
    "region": "north-1",
    "instance_type": "sim.small",
    "capacity": {"cpus": 2.0, "memory_bytes": 4 * GiB, "gpus": [], "gpu_memory_bytes": 0, "gpu_name": ""},
    "market": "on_demand",
    "rate_micros_per_hour": 900_000,
    "billing": {"granularity": 1, "minimum": 0},
    "availability": "available",
    "wait_seconds": 0.0,
    "startup_seconds": 30.0,
    "dated": "",
    "runnable": True,
    "why": "is not on local, the only backend allowed",
    "alike": 6,
}
DOCUMENT = {
    "learned": None,
    "why": None,
    "offers": [OFFER],
    "offers_count": 1,
    "rejected": [REJECTED],
    "rejected_count": 6,
    "chosen": OFFER,
    "fallback": None,
}
"""As every version has stored it, but for `fallback`, which 0.1.0 did not have."""


async def test_the_stored_document_keeps_its_keys_and_values(harness: ControlHarness) -> None:
    job = await submitted(harness, backend="local", bundle=None)
    (row,) = await harness.rows(t.plans)
    assert json.loads(row["document"]) == DOCUMENT
    shown = json.loads((await stored(harness, job)).model_dump_json())
    assert shown == {**DOCUMENT, "made_at": iso(row["made_at"])}


async def test_a_document_that_says_less_or_more_is_read_too(harness: ControlHarness) -> None:
    job = await submitted(harness, backend="local", bundle=None)
    less = {name: value for name, value in OFFER.items() if name not in ("ceiling_micros_per_hour", "paid_seconds")}
    document = json.dumps({"why": None, "chosen": less, "offers": [less], "offers_count": 1, "newer": 7})
    await harness.ports.db.write(lambda conn: conn.execute(t.plans.update().values(document=document)))
    found = await stored(harness, job)
    assert (found.chosen.instance_type, found.chosen.paid_seconds, found.rejected) == ("this computer", None, ())
    assert found.as_json()["newer"] == 7


async def test_it_stays_as_it_was_said(harness: ControlHarness) -> None:
    job = await submitted(harness)
    found = await stored(harness, job)
    await harness.place()
    await harness.host_up()
    runner = FakeRunner(harness.agents, (await harness.attempt(job)).id)
    await runner.say(MessageKind.STARTED, pid=7)
    harness.clock.time += 5000
    await runner.end()
    await planned(harness)
    assert await stored(harness, job) == found


async def test_what_it_took_teaches(harness: ControlHarness, control: ControlPlane) -> None:
    job = await submitted(harness)
    await harness.place()
    await harness.host_up()
    runner = FakeRunner(control.agents, (await harness.attempt(job)).id)
    await runner.say(MessageKind.STARTED, pid=7)
    harness.clock.time += 5000
    await runner.end()
    (item,) = await items(harness)
    assert (item["took_seconds"], item["why_not"]) == (5000.0, None)
    learned = (await plan(harness, command=("python", "main.py")))["learned"]
    assert (learned["jobs"], learned["same_program"]) == (1, 1), "a plan's text and a bundle are the same program"


async def test_a_full_backend_is_predicted_for_too(harness: ControlHarness) -> None:
    jobs = [await submitted(harness, name=f"number {number}") for number in range(3)]
    assert sorted(item["job"] for item in await items(harness)) == sorted(jobs)


async def test_a_rerun_and_many_at_once_are_planned(harness: ControlHarness, control: ControlPlane) -> None:
    bundle = await bundled(harness)
    spec = job_spec(command=RUN, backend="local", bundle=bundle)
    first = (await control.jobs.submit(OWNER, spec, None)).view.id
    again = await control.jobs.rerun(OWNER, first, None)
    many = await control.jobs.submit_many(
        OWNER, [(spec, "key-1"), (spec, "key-1"), (spec.model_copy(update={"tier": "x"}), None)]
    )
    await planned(harness)
    ids = {first, again.view.id, many[0].view.id}  # type: ignore[union-attr]
    assert {item["job"] for item in await items(harness)} == ids


async def test_a_job_that_ended_before_it_was_planned_is_not_planned(
    harness: ControlHarness, control: ControlPlane
) -> None:
    job = await harness.submit(command=RUN, bundle=await bundled(harness))
    await control.jobs.cancel(OWNER, job)
    await harness.listen(600)
    assert JobState((await harness.world(job)).job.state).terminal
    await planned(harness)
    assert (await stored(harness, job), await harness.count(t.predictions)) == (None, 0)


async def test_a_job_that_ends_while_it_is_planned_keeps_no_plan(
    harness: ControlHarness, control: ControlPlane
) -> None:
    job = await harness.submit(command=RUN, bundle=await bundled(harness))
    await control.jobs.cancel(OWNER, job)
    await harness.listen(600)
    await harness.services.forecasts._plan(job, (await harness.world(job)).job.spec)
    assert (await stored(harness, job), await harness.count(t.predictions)) == (None, 0)


@pytest.mark.parametrize("code", ["print(1)", "import (", ""])
async def test_a_program_of_which_nothing_can_be_said(harness: ControlHarness, code: str) -> None:
    job = await submitted(harness, bundle=await bundled(harness, code))
    assert await harness.count(t.predictions) == 0
    assert (await stored(harness, job)).chosen.seconds is None


async def test_a_bundle_that_is_none_harms_nobody(harness: ControlHarness, control: ControlPlane) -> None:
    await control.bundles.put(OWNER, sha(b"no archive"), pieces(b"no archive"))
    await submitted(harness, bundle=sha(b"no archive"))
    job = await submitted(harness)
    assert [item["job"] for item in await items(harness)] == [job]


async def test_long_wishes_do_not_make_a_long_plan(harness: ControlHarness) -> None:
    wishes = ("north", *(f"{n}{'x' * 4000}" for n in range(63)))
    found = await stored(harness, await submitted(harness, backend="cloud", regions=wishes, bundle=None))
    assert max(len(offer.why) for offer in found.rejected) == MAX_TEXT
    assert len(found.rejected) <= MAX_OFFERS
    assert len(found.model_dump_json()) < 10_000


async def test_another_server_plans_what_one_that_died_has_left(harness: ControlHarness) -> None:
    job = await harness.submit(command=RUN, bundle=await bundled(harness))
    restarted = await other_worker(harness, "w2")
    await planned(restarted)
    assert [item["job"] for item in await items(harness)] == [job]


async def test_a_try_that_did_not_end_is_made_again_and_only_so_often(harness: ControlHarness) -> None:
    """The server may have died of it."""
    harness.calls.hanging.add(LANE)
    job = await harness.submit(command=RUN, bundle=await bundled(harness))
    for tries in range(1, MAX_ATTEMPTS):
        await planned(harness)
        (row,) = await harness.rows(t.plans)
        assert (row["tries"], row["due_at"]) == (tries, harness.clock.now() + RETRY_SECONDS)
        harness.clock.time += RETRY_SECONDS
    await planned(harness)
    (row,) = await harness.rows(t.plans)
    assert (row["tries"], row["due_at"], await stored(harness, job)) == (MAX_ATTEMPTS, None, None)


async def test_a_try_that_fails_once_is_made_again(harness: ControlHarness) -> None:
    harness.calls.hanging.add(LANE)
    job = await submitted(harness)
    assert await stored(harness, job) is None
    harness.calls.hanging.clear()
    harness.clock.time += RETRY_SECONDS
    await planned(harness)
    assert [item["job"] for item in await items(harness)] == [job]


async def test_of_two_servers_one_plans_a_job(harness: ControlHarness) -> None:
    twin = await other_worker(harness, "w2")
    await harness.submit(command=RUN, bundle=await bundled(harness))
    harness.clock.time += 10
    harness.calls.lanes.clear()
    await asyncio.gather(harness.services.forecasts.round(), twin.services.forecasts.round())
    assert harness.calls.lanes.count(LANE) == 1
    assert await harness.count(t.predictions) == 1


async def test_one_that_is_late_does_not_replace_the_plan(harness: ControlHarness) -> None:
    twin = await other_worker(harness, "w2")
    job = await submitted(harness)
    before = await stored(harness, job)
    harness.clock.time += 10
    await twin.services.forecasts._plan(job, (await harness.world(job)).job.spec)
    assert await stored(harness, job) == before
    assert await harness.count(t.predictions) == 1


async def test_a_server_plans_for_the_backends_that_it_has(harness: ControlHarness, tmp_path: Path) -> None:
    job = await harness.submit(command=RUN, backend="cloud", bundle=await bundled(harness))
    harness.clock.time += 10
    lone = ControlPlane(harness.ports, {"local": harness.backend}, harness.deployment)
    await lone._services.forecasts.round()
    assert await stored(harness, job) is None
    await planned(harness)
    assert (await stored(harness, job)).chosen.backend == "cloud"


def test_what_is_due_is_found_among_what_is_due() -> None:
    """Not through every job of a backend."""
    engine = create_engine("sqlite://")
    t.metadata.create_all(engine)
    with engine.connect() as conn:
        query = DUE.params(backends=["local"]).compile(engine, compile_kwargs={"literal_binds": True})
        steps = [row[3] for row in conn.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
    assert steps[0] == "SEARCH plans USING INDEX ix_plans_due_at (due_at>?)"
