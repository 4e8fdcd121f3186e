"""What jobs really took corrects what is told of the next ones."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text, update
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

from crucible.control.control_plane import ControlPlane
from crucible.control.db import schema as t
from crucible.control.planning.accuracy import FRESH_SECONDS, lessons_query
from crucible.control.planning.forecast import DELAY_SECONDS
from crucible.core.errors import BadInput
from crucible.core.lifecycle import Reason
from crucible.core.people.identity import OWNER, Identity, LoginMethod, Role
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import Confidence
from crucible.wire.documents.messages import MessageKind
from crucible.wire.files.archive import Entry, pack

RUN = ("{python}", "main.py")
REAL = replace(FakeCloud.capabilities, simulated=False)
TRAIN = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(60000, 784), torch.zeros(60000, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=64)
for epoch in range(30):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path, FakeCloud(capabilities=REAL))
    yield harness
    await give_back(harness.ports.db)


async def plan(harness: ControlHarness, code: str = TRAIN, **asked: Any) -> Any:
    ask = PlanRequest.model_validate({"code": code, **asked})
    return (await harness.services.plans.plan(OWNER, ask)).as_json()


async def told(harness: ControlHarness, **asked: Any) -> float:
    return float((await plan(harness, **asked))["chosen"]["seconds"])


async def bundled(harness: ControlHarness, code: str = TRAIN) -> str:
    packed = io.BytesIO()
    pack([Entry.of_bytes("main.py", code.encode())], packed)
    name = sha(packed.getvalue())
    await service(harness).bundles.put(OWNER, name, pieces(packed.getvalue()))
    return name


async def planned(harness: ControlHarness) -> None:
    """Until nothing is due, a moment after the last submission."""
    harness.clock.time += DELAY_SECONDS
    while any(
        row["due_at"] is not None and row["due_at"] <= harness.clock.now() for row in await harness.rows(t.plans)
    ):
        await harness.services.forecasts.round()


async def submitted(harness: ControlHarness, **spec: Any) -> str:
    """A job that starts the program, and has been planned."""
    job = await harness.submit(**{"command": RUN, "bundle": await bundled(harness), **spec})
    await planned(harness)
    return job


async def running(harness: ControlHarness, **spec: Any) -> tuple[str, FakeRunner]:
    job = await submitted(harness, **spec)
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=77)
    return job, runner


async def ran(harness: ControlHarness, seconds: float, code: int = 0, **spec: Any) -> str:
    """A job that takes so long."""
    job, runner = await running(harness, **spec)
    harness.clock.time += seconds
    await runner.end(code)
    harness.clock.time += FRESH_SECONDS
    return job


async def page(control: ControlPlane, limit: int = 50, cursor: str | None = None, who: Identity = OWNER) -> Any:
    return (await control.plans.predictions(who, limit=limit, cursor=cursor)).as_json()


async def items(harness: ControlHarness) -> Any:
    return (await page(service(harness)))["items"]


async def test_the_next_plan_comes_nearer_to_what_the_last_job_took(harness: ControlHarness) -> None:
    before = await plan(harness)
    assert (before["learned"], before["accuracy"]["count"]) == (None, 0)
    real = 3 * before["chosen"]["seconds"]
    errors = []
    for _ in range(4):
        errors.append(abs(await told(harness) - real) / real)
        await ran(harness, real)
    errors.append(abs(await told(harness) - real) / real)
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(2 / 3)
    assert errors[-1] < 0.15


async def test_a_plan_says_what_corrected_it_and_how_good_predictions_were(harness: ControlHarness) -> None:
    before = await plan(harness)
    assert before["chosen"]["confidence"] != Confidence.HIGH
    for _ in range(4):
        await ran(harness, 2 * before["chosen"]["seconds"])
    after = await plan(harness)
    assert (after["learned"]["jobs"], after["learned"]["same_program"]) == (4, 4)
    assert after["chosen"]["seconds"] == pytest.approx(
        before["chosen"]["seconds"] * after["learned"]["factor"], rel=1e-3
    )
    assert after["accuracy"]["count"] == 4
    assert 0 < after["accuracy"]["median_error"] <= 0.5
    assert after["chosen"]["confidence"] == Confidence.HIGH


async def test_other_arguments_of_the_same_code_are_the_same_program(harness: ControlHarness) -> None:
    await ran(harness, 1000.0)
    assert (await plan(harness, command=("python", "main.py", "--quick")))["learned"]["same_program"] == 1
    other = await plan(harness, TRAIN + "\nprint(loss)\n")
    assert (other["learned"]["jobs"], other["learned"]["same_program"]) == (1, 0)


async def test_hours_that_the_owner_gives_are_not_corrected(harness: ControlHarness) -> None:
    await ran(harness, 5000.0)
    said = await plan(harness, hours=2.0)
    assert (said["chosen"]["seconds"], said["learned"]) == (7200.0, None)
    assert said["job"] == {"backend": "local"}


@pytest.mark.parametrize("exit_code", [1, 3])
async def test_a_job_that_failed_teaches_nothing(harness: ControlHarness, exit_code: int) -> None:
    before = await told(harness)
    await ran(harness, 5.0, exit_code)
    assert await told(harness) == before
    assert [item["why_not"] for item in await items(harness)] == ["it did not complete"]


async def test_a_job_that_was_interrupted_teaches_nothing(harness: ControlHarness) -> None:
    before = await plan(harness)
    job, runner = await running(harness)
    assert (await items(harness))[0]["why_not"] == "it has not ended"
    interrupted = runner.message(MessageKind.EXITED, signal=9, cause="interrupted")
    await runner.send([interrupted, runner.message(MessageKind.ENDED)])
    await harness.listen(120)
    assert (await harness.world(job)).attempts[0].reason is Reason.INTERRUPTED
    again = await harness.runner(job)
    await again.say(MessageKind.STARTED, pid=78)
    harness.clock.time += 4000
    await again.end()
    assert (await harness.world(job)).job.state == "completed"
    assert await told(harness) == before["chosen"]["seconds"]
    assert [item["why_not"] for item in await items(harness)] == ["it took several attempts"]


async def test_a_job_that_ran_elsewhere_teaches_nothing(harness: ControlHarness) -> None:
    before = await plan(harness)
    job, runner = await running(harness)
    mine = t.predictions.c.job == job
    await harness.sql(lambda conn: conn.execute(update(t.predictions).where(mine).values(backend="cloud")).rowcount)
    harness.clock.time += 4000
    await runner.end()
    assert await told(harness) == before["chosen"]["seconds"]
    assert [item["why_not"] for item in await items(harness)] == ["it ran elsewhere"]


async def test_a_job_that_begins_in_the_middle_is_no_measure_of_the_whole(harness: ControlHarness) -> None:
    job, runner = await running(harness)
    await runner.end()
    row = {"id": "ckp-00001", "job": job, "attempt": runner.attempt, "rank": 0, "name": "a", "form": "file"}
    more = {"size": 1, "sha256": "0" * 64, "stored_at": 1.0}
    await harness.sql(lambda conn: conn.execute(t.checkpoints.insert().values({**row, **more})).rowcount)
    rest = await submitted(harness, resume_from="ckp-00001")
    assert [item["job"] for item in await items(harness)] == [job]
    assert (await service(harness).jobs.details(OWNER, rest)).plan.chosen.backend == "local"


async def test_the_runners_own_clock_counts_where_it_has_told(harness: ControlHarness) -> None:
    """The server may hear of the end long after it."""
    _, runner = await running(harness)
    harness.clock.time += 90_000
    await runner.end(seconds=120.0)
    assert (await items(harness))[0]["took_seconds"] == 120.0


async def test_another_server_knows_what_was_told_and_what_was_learned(harness: ControlHarness) -> None:
    """One that shares the database, or the same after a restart."""
    first = await plan(harness)
    await ran(harness, 3 * first["chosen"]["seconds"])
    corrected = await plan(harness)
    restarted = await other_worker(harness, "w2")
    assert await told(restarted) == corrected["chosen"]["seconds"]
    twin = await other_worker(harness, "w3")
    await twin.duties.renew(twin.ports.db, twin.clock)
    job = await submitted(twin)
    newest = (await items(harness))[0]
    assert (newest["job"], newest["predicted_seconds"]) == (job, corrected["chosen"]["seconds"])


async def test_a_rerun_is_predicted_with_what_the_first_taught(harness: ControlHarness) -> None:
    job = await ran(harness, 1000.0)
    again = await harness.revival.rerun(job, None)
    await planned(harness)
    found = await items(harness)
    assert [item["job"] for item in found] == [again.job, job]
    assert abs(found[0]["predicted_seconds"] - 1000.0) < abs(found[1]["predicted_seconds"] - 1000.0)


async def test_a_job_of_which_no_program_is_known_has_a_plan_and_no_prediction(harness: ControlHarness) -> None:
    job = await harness.submit(plan="of.an-old-client")
    await planned(harness)
    assert await harness.count(t.predictions) == 0
    assert (await service(harness).jobs.details(OWNER, job)).plan.chosen.seconds is None


async def test_a_simulated_place_teaches_nothing(tmp_path: Path) -> None:
    harness = await make_harness(tmp_path, FakeCloud())
    job = await submitted(harness, backend="cloud")
    assert (await service(harness).jobs.details(OWNER, job)).plan.chosen.simulated is True
    assert await harness.count(t.predictions) == 0
    await give_back(harness.ports.db)


async def test_each_is_shown_with_its_error(harness: ControlHarness) -> None:
    first = await plan(harness)
    job = await ran(harness, 2 * first["chosen"]["seconds"])
    found = await page(service(harness), limit=1)
    (item,) = found["items"]
    assert (item["job"], item["status"], item["backend"], item["gpu"]) == (job, "completed", "local", "T4")
    assert item["predicted_seconds"] == item["analytic_seconds"] == first["chosen"]["seconds"]
    assert item["took_seconds"] == pytest.approx(2 * item["predicted_seconds"])
    assert (item["error"], item["why_not"], found["next"]) == (0.5, None, None)
    assert found["accuracy"] == {"count": 1, "median_error": 0.5, "close": 0.0}
    assert (await service(harness).jobs.details(OWNER, job)).predicted_seconds == item["predicted_seconds"]


async def test_pages_follow_each_other_newest_first(harness: ControlHarness) -> None:
    made = [await ran(harness, 100.0) for _ in range(3)]
    first = await page(service(harness), limit=2)
    second = await page(service(harness), limit=2, cursor=first["next"])
    assert [item["job"] for item in (*first["items"], *second["items"])] == made[::-1]
    assert second["next"] is None
    with pytest.raises(BadInput):
        await page(service(harness), cursor="not one of ours")


async def test_those_of_other_projects_are_not_shown(harness: ControlHarness) -> None:
    job = await ran(harness, 100.0)
    control = service(harness)
    for name in ("vision", "speech"):
        await control.people.ensure_project(OWNER, name)
    theirs = await ran(harness, 100.0, project="vision")
    somebody = Identity("usr-1", "ann", LoginMethod.TOKEN, roles={"vision": Role.MEMBER})
    stranger = Identity("usr-2", "bob", LoginMethod.TOKEN, roles={"speech": Role.MEMBER})
    assert [item["job"] for item in await items(harness)] == [theirs, job]
    seen = await page(control, who=somebody)
    assert ([item["job"] for item in seen["items"]], seen["accuracy"]["count"]) == ([theirs], 1)
    nothing = {"items": [], "next": None, "accuracy": {"count": 0, "median_error": None, "close": None}}
    assert await page(control, who=stranger) == nothing
    shared = replace(somebody, via=LoginMethod.SHARE, job=job)
    assert await page(control, who=shared) == nothing


async def test_lessons_are_read_at_most_every_few_seconds(harness: ControlHarness) -> None:
    job = await ran(harness, 1000.0)
    harness.clock.time += FRESH_SECONDS
    learned = (await plan(harness))["learned"]
    await harness.sql(lambda conn: conn.execute(t.predictions.delete().where(t.predictions.c.job == job)).rowcount)
    assert (await plan(harness))["learned"] == learned
    harness.clock.time += FRESH_SECONDS
    assert (await plan(harness))["learned"] is None


def test_lessons_are_looked_up_from_the_newest_predictions_on() -> None:
    """Not through every job that ever completed."""
    engine = create_engine("sqlite://")
    t.metadata.create_all(engine)
    with engine.connect() as conn:
        query = str(lessons_query(select(t.predictions)).compile(engine, compile_kwargs={"literal_binds": True}))
        steps = [row[3] for row in conn.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
    assert "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)" in steps
    assert not [step for step in steps if "ix_jobs_state" in step]


def test_the_plan_that_an_old_client_names_is_a_word() -> None:
    assert "plan" not in job_spec().model_dump()
    with pytest.raises(ValueError, match="plan"):
        job_spec(plan="a plan\n")
    with pytest.raises(ValueError, match="plan"):
        job_spec(plan="x" * 1001)
