from __future__ import annotations

from tests.control.harness import KEY, ControlHarness, job_spec, pieces, secret, service, sha

from crucible.control.agents.desired import attempt_desired, desired_document, job_seed
from crucible.control.reconcile import repository
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.core.compute.resources import GiB
from crucible.core.lifecycle import Reason, World
from crucible.core.lifecycle import facts as f
from crucible.core.people.identity import OWNER
from crucible.core.views.agents import DesiredAttemptView
from crucible.wire.documents.desired import DataItem, Desired, Environment, Limits, decode_desired, encode_desired
from crucible.wire.documents.messages import MessageKind


async def document(harness: ControlHarness, machine: str | None = None) -> Desired | None:
    name = machine or (await harness.machine()).id
    return await harness.read(lambda conn: desired_document(conn, name, KEY, harness.clock.now()))


async def known(harness: ControlHarness) -> Desired:
    found = await document(harness)
    assert found is not None
    return found


async def test_an_assignment_carries_all_a_runner_needs(harness: ControlHarness) -> None:
    data = b"an archive"
    await harness.bundles.put(OWNER, sha(data), pieces(data))
    spec = job_spec(
        command=("{python}", "train.py", "--lr", "0.1"),
        bundle=sha(data),
        gpus=1,
        seconds=60,
        environment={"requirements": ("torch", "numpy"), "python": "3.12", "origin": "requirements.txt"},
        env={"A": "1"},
        data=({"name": "mnist", "source": "/data/mnist"},),
        grace_seconds=3,
    )
    job = (await harness.accept(spec)).job
    attempt = await harness.attempt(job)
    (found,) = (await known(harness)).assignments
    assert (found.attempt, found.job, found.rank) == (attempt.id, job, 0)
    assert found.secret == secret("attempt", attempt.id).decode()
    assert found.command == spec.command
    assert (found.bundle, found.in_place, found.grace, found.stop) == (sha(data), None, 3, False)
    assert found.environment == Environment(requirements=("torch", "numpy"), python="3.12", origin="requirements.txt")
    told = {"CRUCIBLE_ATTEMPT": "1", "CRUCIBLE_KIND": "train", "CRUCIBLE_SEED": str(job_seed(job, spec))}
    assert found.env == {"A": "1", **told}
    assert found.data == (DataItem("mnist", "/data/mnist"),)
    assert found.limits == Limits(memory_bytes=GiB, cpus=1, seconds=60, gpus=(0,))


async def test_it_travels_unchanged(harness: ControlHarness) -> None:
    await harness.submit(gpus=2, environment={"interpreter": "/usr/bin/python3"})
    await harness.submit(in_place="/home/me")
    await harness.submit(workdir="experiments/first")
    found = await known(harness)
    assert decode_desired(encode_desired(found)) == found
    assert "experiments/first" in {assignment.workdir for assignment in found.assignments}


async def test_a_job_without_a_size_has_no_limits(harness: ControlHarness) -> None:
    await harness.submit(resources={})
    (found,) = (await known(harness)).assignments
    assert found.limits == Limits(gpus=(0, 1))


async def test_every_change_has_a_new_version(harness: ControlHarness) -> None:
    control = service(harness)
    versions = []
    job = await harness.submit()
    versions.append((await known(harness)).version)
    other = await harness.submit()
    versions.append((await known(harness)).version)
    await control.jobs.cancel(OWNER, job)
    versions.append((await known(harness)).version)
    await harness.host_up()
    await (await harness.runner(other)).end()
    versions.append((await known(harness)).version)
    assert versions == sorted(set(versions))


async def test_what_changes_nothing_keeps_the_version(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    before = await known(harness)
    await runner.send([])
    harness.clock.move(100)
    await harness.reconciler.round()
    await harness.poller.poll()
    assert await known(harness) == before
    assert (await harness.world(job)).live is not None


async def test_a_cancelled_job_is_to_stop_and_others_are_not(harness: ControlHarness) -> None:
    job, other = await harness.submit(), await harness.submit()
    await harness.host_up()
    await service(harness).jobs.cancel(OWNER, job)
    assert {a.job: a.stop for a in (await known(harness)).assignments} == {job: True, other: False}


async def test_what_was_cancelled_before_a_host_came_is_not_listed(harness: ControlHarness) -> None:
    job, other = await harness.submit(), await harness.submit()
    await service(harness).jobs.cancel(OWNER, job)
    assert [a.job for a in (await known(harness)).assignments] == [other]


async def test_a_settled_attempt_is_listed_no_more(harness: ControlHarness) -> None:
    _, runner = await harness.running()
    await runner.end()
    assert (await known(harness)).assignments == ()


async def test_an_unwanted_machine_has_no_document(harness: ControlHarness) -> None:
    machine = await harness.host_up() if await harness.submit() else ""
    await harness.change_machine(machine, f.Unwanted("enough"))
    assert await document(harness, machine) is None
    await harness.performer.perform_due()
    assert await document(harness, machine) is None
    assert await document(harness, "mch-unknown") is None


async def test_wishes_of_one_attempt(harness: ControlHarness) -> None:
    job, runner = await harness.running()

    async def desired() -> DesiredAttemptView | None:
        return await harness.read(lambda conn: attempt_desired(conn, runner.attempt))

    assert await desired() == DesiredAttemptView(stop=False, settled=False, checkpoint=0)
    await service(harness).checkpoints.request(OWNER, job)
    assert await desired() == DesiredAttemptView(stop=False, settled=False, checkpoint=1)
    await service(harness).jobs.cancel(OWNER, job)
    assert await desired() == DesiredAttemptView(stop=True, settled=False, checkpoint=1)
    await runner.end()
    assert await desired() == DesiredAttemptView(stop=True, settled=True, checkpoint=1)
    assert await harness.read(lambda conn: attempt_desired(conn, "att-unknown")) is None


async def test_an_attempt_that_is_stopped_is_told_so_and_the_next_one_is_not(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    stop = f.StopAttempt(runner.attempt, "another job needs its machine")
    await harness.writer.write(lambda unit: unit.advance(_world(unit, job), stop))
    (found,) = (await known(harness)).assignments
    assert found.stop
    wanted = await harness.read(lambda conn: attempt_desired(conn, runner.attempt))
    assert wanted is not None
    assert wanted.stop
    exit_report = runner.message(MessageKind.EXITED, code=None, signal=15, cause="stopped")
    await runner.send([exit_report, runner.message(MessageKind.ENDED)])
    first, second = (await harness.world(job)).attempts
    assert first.reason is Reason.STOPPED
    (found,) = (await known(harness)).assignments
    assert (found.attempt, found.stop) == (second.id, False)


def _world(unit: UnitOfWork, job: str) -> World:
    world = repository.load_world(unit.conn, job)
    assert world is not None
    return world
