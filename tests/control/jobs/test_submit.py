from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.control.world import Rig, job_spec, pieces, sha

from crucible.control.db import schema as t
from crucible.core.compute.resources import GiB
from crucible.core.errors import BadInput, Conflict, NoCapacity, UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle import AttemptState, JobState, MachineState
from crucible.core.people.identity import OWNER


async def nothing_stored(rig: Rig) -> bool:
    tables = (t.jobs, t.attempts, t.machines, t.effects, t.events, t.idempotency)
    return not any([await rig.rows(table) for table in tables])


async def test_one_commit_takes_a_job_to_its_launch(rig: Rig) -> None:
    accepted = await rig.accept(job_spec(name="first"))
    world = await rig.world(accepted.job)
    assert accepted.created
    assert world.job.state is JobState.PROVISIONING
    assert world.job.spec == job_spec(name="first")
    assert world.live is not None
    assert world.live.state is AttemptState.LAUNCHING
    (machine,) = world.machines.values()
    assert machine.state is MachineState.INTENDED
    (effect,) = await rig.rows(t.effects)
    assert (effect["kind"], effect["machine"], effect["done"]) == ("launch", machine.id, False)
    assert [e["type"] for e in await rig.rows(t.events)] == ["submitted", "queued", "placed"]
    assert rig.backend.launches == [], "nothing is done outside before the commit"


async def test_the_call_is_stored_as_it_will_be_made(rig: Rig) -> None:
    await rig.submit()
    machine = await rig.machine()
    await rig.performer.perform_due()
    (made,) = rig.backend.launches
    assert json.loads(machine.call) == {
        "backend": made.backend,
        "token": made.token,
        "action": made.action,
        "parameters": made.parameters,
    }


async def test_the_same_key_and_body_give_the_same_job(rig: Rig) -> None:
    first = await rig.accept(job_spec(), "key")
    again = await rig.accept(job_spec(), "key")
    assert again.job == first.job
    assert not again.created
    assert await rig.count(t.jobs) == 1


async def test_the_same_key_and_another_body_conflict(rig: Rig) -> None:
    first = await rig.accept(job_spec(), "key")
    with pytest.raises(Conflict) as raised:
        await rig.accept(job_spec(name="another"), "key")
    assert raised.value.data["job"] == first.job
    assert await rig.count(t.jobs) == 1


async def test_without_a_key_every_submission_is_a_job(rig: Rig) -> None:
    assert await rig.submit() != await rig.submit()
    assert await rig.rows(t.idempotency) == []


async def test_a_key_is_answered_though_the_place_shrank_meanwhile(rig: Rig) -> None:
    first = await rig.accept(job_spec(cpus=4), "key")
    rig.backend.capacity = rig.backend.capacity.model_copy(update={"cpus": 2})
    await rig.connected.refresh()
    assert (await rig.accept(job_spec(cpus=4), "key")).job == first.job


async def test_a_bundle_has_to_be_there(rig: Rig) -> None:
    data = b"an archive"
    with pytest.raises(BadInput, match="uploaded"):
        await rig.accept(job_spec(bundle=sha(data)))
    assert await nothing_stored(rig)
    await rig.bundles.put(OWNER, sha(data), pieces(data))
    assert (await rig.accept(job_spec(bundle=sha(data)))).created


@pytest.mark.parametrize(
    ("spec", "meant"),
    [(job_spec(backend="locla"), "local"), (job_spec(tier="CPU_SMAL"), "CPU_SMALL")],
)
async def test_unknown_names_are_refused_with_the_nearest(rig: Rig, spec: JobSpec, meant: str) -> None:
    with pytest.raises(UnknownName) as raised:
        await rig.accept(spec)
    assert raised.value.meant == meant
    assert await nothing_stored(rig)


@pytest.mark.parametrize(
    ("size", "why"),
    [({"cpus": 5}, "5 CPUs"), ({"memory": 17 * GiB}, "17 GiB"), ({"gpus": 3}, "3 GPUs")],
)
async def test_more_than_the_place_has_is_refused_and_not_stored(rig: Rig, size: dict[str, int], why: str) -> None:
    with pytest.raises(NoCapacity, match=why) as raised:
        await rig.accept(job_spec(**size), "key")
    assert raised.value.data["rejected"]
    assert await nothing_stored(rig)


async def test_a_job_in_place_needs_a_place_that_can(rig: Rig) -> None:
    assert (await rig.accept(job_spec(in_place="/home/me"))).created
    rig.backend.capabilities = replace(rig.backend.capabilities, in_place=False)
    with pytest.raises(NoCapacity, match="in place"):
        await rig.accept(job_spec(in_place="/home/me"))


async def test_a_tier_gives_the_size_and_own_wishes_win(rig: Rig) -> None:
    job = (await rig.accept(job_spec(tier="cpu-large", resources={"cpus": 1}))).job
    found = (await rig.world(job)).job.resources
    assert (found.cpus, found.memory_bytes, found.seconds) == (1, 4 * GiB, 600)


async def test_a_key_of_a_job_that_ended_still_names_it(rig: Rig) -> None:
    first = await rig.accept(job_spec(), "key")
    await rig.host_up()
    await (await rig.runner(first.job)).end()
    assert (await rig.accept(job_spec(), "key")).job == first.job
