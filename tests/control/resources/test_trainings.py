from __future__ import annotations

from typing import Any

import pytest
from tests.control.harness import ControlHarness, service

from crucible.core.errors import NotFound
from crucible.core.job.spec import JobSpec
from crucible.core.job.training import TrainingRequest, prepare_job
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.wire.documents.messages import MessageKind


def spec(**config: Any) -> JobSpec:
    config = {"command": ["train"], "epochs": 10, "resources": {"cpus": 1}, **config}
    return prepare_job(TrainingRequest.model_validate({"model_name": "resnet", "config": config})).spec


async def test_the_record_follows_the_job(harness: ControlHarness) -> None:
    control = service(harness)
    job = (await harness.accept(spec(lr=0.1))).job
    record: Any = await control.trainings.record(OWNER, job)
    assert (record.job_id, record.model_name, record.executor_type) == (job, "resnet", "local")
    assert (record.config["lr"], record.config["epochs"]) == (0.1, 10)
    assert (record.status, record.current_epoch, record.current_metrics) == ("queued", None, {})
    assert (record.total_epochs, record.tenant_id, record.user_id) == (10, "default", "owner")
    assert record.execution_id == f"local-{job}"
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=77)
    await runner.say(MessageKind.PROGRESS, epoch=2, total_epochs=12, fraction=0.2)
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 1.0]], "system.cpu_percent": [[1, 3.0, 1.0]]})
    record = await control.trainings.record(OWNER, job)
    assert (record.status, record.current_epoch, record.total_epochs) == ("running", 2, 12)
    assert record.current_metrics == {"loss": 0.5}
    assert record.execution_id == f"local-{job}-77"


async def test_what_it_went_on_from_is_in_its_config(harness: ControlHarness) -> None:
    control = service(harness)
    job = (await harness.accept(spec())).job
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=77)
    await runner.say(MessageKind.CHECKPOINT, name="a.pt", form="file", size=1, sha256="a" * 64, step=50, metric=None)
    await runner.end(code=1)
    await control.jobs.resume(OWNER, job, Resumption(checkpoint="latest"))
    await harness.place()
    [checkpoint] = (await control.checkpoints.list_checkpoints(OWNER, job)).items
    record: Any = await control.trainings.record(OWNER, job)
    assert record.config["resume_from"] == checkpoint.id


async def test_any_job_has_a_record(harness: ControlHarness) -> None:
    job = await harness.submit(name="mine")
    record: Any = await service(harness).trainings.record(OWNER, job)
    assert (record.model_name, record.config) == ("mine", {})


async def test_one_that_is_not_there(harness: ControlHarness) -> None:
    with pytest.raises(NotFound):
        await service(harness).trainings.record(OWNER, "zzzzzz")


async def test_a_tenant_is_a_project_and_a_rerun_stays_in_it(harness: ControlHarness) -> None:
    control = service(harness)
    await control.people.ensure_project(OWNER, "my-tenant")
    theirs = spec().model_copy(update={"project": "my-tenant"})
    made = await control.jobs.submit(OWNER, theirs, "k")
    job = made.view.id
    assert (await harness.world(job)).job.project == "my-tenant"
    again = await control.jobs.rerun(OWNER, job, None)
    assert (await harness.world(again.view.id)).job.project == "my-tenant"
    assert not (await control.jobs.submit(OWNER, theirs, "k")).created
    assert (await control.jobs.submit(OWNER, spec(), "k")).created, "another project's key is another key"
    assert (await harness.world(await harness.submit())).job.project == "default"
