from __future__ import annotations

from tests.control.world import KEY, Rig, job_spec, pieces, secret, service, sha

from crucible.control.agents.desired import attempt_desired, desired_document, job_seed
from crucible.core.compute.resources import GiB
from crucible.core.lifecycle import facts as f
from crucible.core.people.identity import OWNER
from crucible.core.views.agents import DesiredAttemptView
from crucible.wire.documents.desired import DataItem, Desired, Environment, Limits, decode_desired, encode_desired


async def document(rig: Rig, machine: str | None = None) -> Desired | None:
    name = machine or (await rig.machine()).id
    return await rig.read(lambda conn: desired_document(conn, name, KEY, rig.clock.now()))


async def known(rig: Rig) -> Desired:
    found = await document(rig)
    assert found is not None
    return found


async def test_an_assignment_carries_all_a_runner_needs(rig: Rig) -> None:
    data = b"an archive"
    await rig.bundles.put(OWNER, sha(data), pieces(data))
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
    job = (await rig.accept(spec)).job
    attempt = await rig.attempt(job)
    (found,) = (await known(rig)).assignments
    assert (found.attempt, found.job, found.rank) == (attempt.id, job, 0)
    assert found.secret == secret("attempt", attempt.id).decode()
    assert found.command == spec.command
    assert (found.bundle, found.in_place, found.grace, found.stop) == (sha(data), None, 3, False)
    assert found.environment == Environment(requirements=("torch", "numpy"), python="3.12", origin="requirements.txt")
    told = {"CRUCIBLE_ATTEMPT": "1", "CRUCIBLE_KIND": "train", "CRUCIBLE_SEED": str(job_seed(job, spec))}
    assert found.env == {"A": "1", **told}
    assert found.data == (DataItem("mnist", "/data/mnist"),)
    assert found.limits == Limits(memory_bytes=GiB, cpus=1, seconds=60, gpus=(0,))


async def test_it_travels_unchanged(rig: Rig) -> None:
    await rig.submit(gpus=2, environment={"interpreter": "/usr/bin/python3"})
    await rig.submit(in_place="/home/me")
    found = await known(rig)
    assert decode_desired(encode_desired(found)) == found


async def test_a_job_without_a_size_has_no_limits(rig: Rig) -> None:
    await rig.submit(resources={})
    (found,) = (await known(rig)).assignments
    assert found.limits == Limits(gpus=(0, 1))


async def test_every_change_has_a_new_version(rig: Rig) -> None:
    control = service(rig)
    versions = []
    job = await rig.submit()
    versions.append((await known(rig)).version)
    other = await rig.submit()
    versions.append((await known(rig)).version)
    await control.jobs.cancel(OWNER, job)
    versions.append((await known(rig)).version)
    await rig.host_up()
    await (await rig.runner(other)).end()
    versions.append((await known(rig)).version)
    assert versions == sorted(set(versions))


async def test_what_changes_nothing_keeps_the_version(rig: Rig) -> None:
    job, runner = await rig.running()
    before = await known(rig)
    await runner.send([])
    rig.clock.move(100)
    await rig.reconciler.round()
    await rig.poller.poll()
    assert await known(rig) == before
    assert (await rig.world(job)).live is not None


async def test_a_cancelled_job_is_to_stop_and_others_are_not(rig: Rig) -> None:
    job, other = await rig.submit(), await rig.submit()
    await rig.host_up()
    await service(rig).jobs.cancel(OWNER, job)
    assert {a.job: a.stop for a in (await known(rig)).assignments} == {job: True, other: False}


async def test_what_was_cancelled_before_a_host_came_is_not_listed(rig: Rig) -> None:
    job, other = await rig.submit(), await rig.submit()
    await service(rig).jobs.cancel(OWNER, job)
    assert [a.job for a in (await known(rig)).assignments] == [other]


async def test_a_settled_attempt_is_listed_no_more(rig: Rig) -> None:
    _, runner = await rig.running()
    await runner.end()
    assert (await known(rig)).assignments == ()


async def test_an_unwanted_machine_has_no_document(rig: Rig) -> None:
    machine = await rig.host_up() if await rig.submit() else ""
    await rig.change_machine(machine, f.Unwanted("enough"))
    assert await document(rig, machine) is None
    await rig.performer.perform_due()
    assert await document(rig, machine) is None
    assert await document(rig, "mch-unknown") is None


async def test_wishes_of_one_attempt(rig: Rig) -> None:
    job, runner = await rig.running()

    async def desired() -> DesiredAttemptView | None:
        return await rig.read(lambda conn: attempt_desired(conn, runner.attempt))

    assert await desired() == DesiredAttemptView(stop=False, settled=False, checkpoint=0)
    await service(rig).checkpoints.request(OWNER, job)
    assert await desired() == DesiredAttemptView(stop=False, settled=False, checkpoint=1)
    await service(rig).jobs.cancel(OWNER, job)
    assert await desired() == DesiredAttemptView(stop=True, settled=False, checkpoint=1)
    await runner.end()
    assert await desired() == DesiredAttemptView(stop=True, settled=True, checkpoint=1)
    assert await rig.read(lambda conn: attempt_desired(conn, "att-unknown")) is None
