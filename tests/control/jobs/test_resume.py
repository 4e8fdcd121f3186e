from __future__ import annotations

from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud
from tests.control.harness import ControlHarness, give_back, job_spec, join, make_harness, service

from crucible.core.errors import Conflict, NotFound, UnknownName
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.requests import Resumption
from crucible.wire.documents.messages import MessageKind


async def test_a_failed_job_goes_on_as_the_same_job(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.end(code=1)
    view = await service(harness).jobs.resume(OWNER, job, Resumption())
    assert (view.id, view.generation, view.status) == (job, 2, "running")
    await harness.place()
    assert [a.number for a in (await harness.world(job)).attempts] == [1, 2]
    again = await harness.runner(job)
    await again.end()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


async def test_a_cancelled_job_goes_on_too(harness: ControlHarness) -> None:
    job = await harness.submit()
    control = service(harness)
    await control.jobs.cancel(OWNER, job)
    assert (await control.jobs.resume(OWNER, job, Resumption())).desired == "run"


async def test_a_job_that_has_not_ended_is_a_conflict(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    with pytest.raises(Conflict, match="has not ended"):
        await service(harness).jobs.resume(OWNER, job, Resumption())


async def test_a_completed_job_needs_a_checkpoint_to_go_on_from(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.say(MessageKind.CHECKPOINT, name="a.pt", form="file", size=1, sha256="a" * 64, step=1, metric=None)
    await runner.end()
    control = service(harness)
    with pytest.raises(Conflict, match="nothing left to do"):
        await control.jobs.resume(OWNER, job, Resumption())
    assert (await control.jobs.resume(OWNER, job, Resumption(checkpoint="latest"))).status == "running"


async def test_unknown_names_are_refused_and_nothing_changes(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.end(code=1)
    control = service(harness)
    with pytest.raises(NotFound):
        await control.jobs.resume(OWNER, job, Resumption(checkpoint="step-7"))
    with pytest.raises(UnknownName):
        await control.jobs.resume(OWNER, job, Resumption(backend="nowhere"))
    assert (await harness.world(job)).job.state is JobState.FAILED


async def test_a_place_that_is_no_longer_connected_is_refused(harness: ControlHarness, tmp_path: Path) -> None:
    both = await make_harness(tmp_path, FakeCloud())
    job = await both.submit(backend="cloud")
    await service(both).jobs.cancel(OWNER, job)
    alone = join(both.ports, both.clock, both.calls, {"local": both.backend}, tmp_path)
    with pytest.raises(UnknownName):
        await service(alone).jobs.resume(OWNER, job, Resumption())
    await give_back(both.ports.db)


async def test_resuming_twice_is_a_conflict_the_second_time(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    await runner.end(code=1)
    control = service(harness)
    await control.jobs.resume(OWNER, job, Resumption())
    with pytest.raises(Conflict):
        await control.jobs.resume(OWNER, job, Resumption())


async def test_a_rerun_is_a_new_job_with_the_same_record(harness: ControlHarness) -> None:
    spec = job_spec(command=("python", "train.py", "--lr", "0.1"), env={"A": "1"}, tags=("mine",))
    job = (await harness.accept(spec)).job
    control = service(harness)
    again = await control.jobs.rerun(OWNER, job, None)
    world = await harness.world(again.view.id)
    assert again.created
    assert world.job.id != job
    assert world.job.spec.rerun_of == job
    assert world.job.spec.project == "default"
    same = world.job.spec.model_copy(update={"seed": None, "rerun_of": None, "project": None})
    assert same == spec


async def test_a_rerun_has_the_seed_of_the_first(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    again = await service(harness).jobs.rerun(OWNER, job, None)
    await harness.place()
    machine = (await harness.machine()).id
    document = await harness.agents.desired(machine, 0, 0)
    assert document is not None
    seeds = {a.job: a.env["CRUCIBLE_SEED"] for a in document.assignments}
    assert seeds[job] == seeds[again.view.id]


async def test_a_rerun_pins_the_packages_its_runner_told_of(harness: ControlHarness) -> None:
    job = (await harness.accept(job_spec(environment={"requirements": ("torch",), "origin": "requirements.txt"}))).job
    await harness.host_up()
    runner = await harness.runner(job)
    await runner.say(MessageKind.STARTED, pid=1, packages=["torch==2.13.0", "numpy==2.4.1"], python_version="3.11.7")
    again = await service(harness).jobs.rerun(OWNER, job, None)
    environment = (await harness.world(again.view.id)).job.spec.environment
    assert environment.requirements == ("torch==2.13.0", "numpy==2.4.1")
    assert environment.python == "3.11.7"


async def test_a_rerun_with_a_key_happens_once(harness: ControlHarness) -> None:
    job = await harness.submit()
    control = service(harness)
    first, second = await control.jobs.rerun(OWNER, job, "k"), await control.jobs.rerun(OWNER, job, "k")
    assert (first.view.id, second.created) == (second.view.id, False)


async def test_only_a_running_program_can_be_asked_for_a_checkpoint(harness: ControlHarness) -> None:
    job = await harness.submit()
    with pytest.raises(Conflict, match="is not running"):
        await service(harness).checkpoints.request(OWNER, job)
