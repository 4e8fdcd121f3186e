from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.clouds import FakeCloud
from tests.control.harness import ControlHarness, give_back, job_spec, make_harness, pieces, sha

from crucible.backends.base import Reach
from crucible.control.db import schema as t
from crucible.core.compute.resources import GiB
from crucible.core.errors import BadInput, Conflict, NoCapacity, UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle import AttemptState, JobState, MachineState
from crucible.core.people.identity import OWNER


async def nothing_stored(harness: ControlHarness) -> bool:
    tables = (t.jobs, t.attempts, t.machines, t.effects, t.events, t.idempotency)
    return not any([await harness.rows(table) for table in tables])


async def test_one_commit_takes_a_job_to_its_launch(harness: ControlHarness) -> None:
    accepted = await harness.accept(job_spec(name="first"))
    world = await harness.world(accepted.job)
    assert accepted.created
    assert world.job.state is JobState.PROVISIONING
    assert world.job.spec == job_spec(name="first")
    assert world.live is not None
    assert world.live.state is AttemptState.LAUNCHING
    (machine,) = world.machines.values()
    assert machine.state is MachineState.INTENDED
    (effect,) = await harness.rows(t.effects)
    assert (effect["kind"], effect["machine"], effect["done"]) == ("launch", machine.id, False)
    assert [e["type"] for e in await harness.rows(t.events)] == ["submitted", "queued", "placed"]
    assert harness.backend.launches == [], "nothing is done outside before the commit"


async def test_the_call_is_stored_as_it_will_be_made(harness: ControlHarness) -> None:
    await harness.submit()
    machine = await harness.machine()
    await harness.performer.perform_due()
    (made,) = harness.backend.launches
    assert json.loads(machine.call) == {
        "backend": made.backend,
        "token": made.token,
        "action": made.action,
        "parameters": made.parameters,
    }


async def test_a_job_on_several_machines_is_refused(harness: ControlHarness) -> None:
    with pytest.raises(BadInput, match="several machines are not supported yet") as refused:
        await harness.accept(job_spec(nodes=2))
    assert "--gpus" in refused.value.fix
    assert await nothing_stored(harness)


async def test_the_same_key_and_body_give_the_same_job(harness: ControlHarness) -> None:
    first = await harness.accept(job_spec(), "key")
    again = await harness.accept(job_spec(), "key")
    assert again.job == first.job
    assert not again.created
    assert await harness.count(t.jobs) == 1


async def test_the_same_key_and_another_body_conflict(harness: ControlHarness) -> None:
    first = await harness.accept(job_spec(), "key")
    with pytest.raises(Conflict) as raised:
        await harness.accept(job_spec(name="another"), "key")
    assert raised.value.data["job"] == first.job
    assert await harness.count(t.jobs) == 1


async def test_without_a_key_every_submission_is_a_job(harness: ControlHarness) -> None:
    assert await harness.submit() != await harness.submit()
    assert await harness.rows(t.idempotency) == []


async def test_a_key_is_answered_though_the_place_shrank_meanwhile(harness: ControlHarness) -> None:
    first = await harness.accept(job_spec(cpus=4), "key")
    harness.backend.capacity = harness.backend.capacity.model_copy(update={"cpus": 2})
    await harness.offers.refresh()
    assert (await harness.accept(job_spec(cpus=4), "key")).job == first.job


async def test_a_bundle_has_to_be_there(harness: ControlHarness) -> None:
    data = b"an archive"
    with pytest.raises(BadInput, match="uploaded"):
        await harness.accept(job_spec(bundle=sha(data)))
    assert await nothing_stored(harness)
    await harness.bundles.put(OWNER, sha(data), pieces(data))
    assert (await harness.accept(job_spec(bundle=sha(data)))).created


@pytest.mark.parametrize(
    ("spec", "meant"),
    [(job_spec(backend="locla"), "local"), (job_spec(tier="CPU_SMAL"), "CPU_SMALL")],
)
async def test_unknown_names_are_refused_with_the_nearest(harness: ControlHarness, spec: JobSpec, meant: str) -> None:
    with pytest.raises(UnknownName) as raised:
        await harness.accept(spec)
    assert raised.value.meant == meant
    assert await nothing_stored(harness)


@pytest.mark.parametrize(
    ("size", "why"),
    [({"cpus": 5}, "5 CPUs"), ({"memory": 17 * GiB}, "17 GiB"), ({"gpus": 3}, "3 GPUs")],
)
async def test_more_than_the_place_has_is_refused_and_not_stored(
    harness: ControlHarness, size: dict[str, int], why: str
) -> None:
    with pytest.raises(NoCapacity, match=why) as raised:
        await harness.accept(job_spec(**size), "key")
    assert raised.value.data["rejected"]
    assert await nothing_stored(harness)


async def test_a_job_in_place_needs_a_place_that_can(harness: ControlHarness) -> None:
    assert (await harness.accept(job_spec(in_place="/home/me"))).created
    harness.backend.capabilities = replace(harness.backend.capabilities, in_place=False)
    with pytest.raises(NoCapacity, match="in place"):
        await harness.accept(job_spec(in_place="/home/me"))


PATHS = ({"name": "set", "source": "/data/set"}, {"name": "set", "source": "file:///data/set"})


@pytest.mark.parametrize("item", PATHS)
async def test_a_path_of_this_computer_needs_machines_that_may_have_it(
    harness: ControlHarness, item: dict[str, str]
) -> None:
    given = job_spec(data=(item,))
    for reach in (Reach.SAME_COMPUTER, Reach.SHARED_DIR, Reach.TUNNEL):
        harness.backend.capabilities = replace(harness.backend.capabilities, reach=reach)
        assert (await harness.accept(given)).created
    for reach in (Reach.LOOPBACK, Reach.INTERNET):
        harness.backend.capabilities = replace(harness.backend.capabilities, reach=reach)
        with pytest.raises(NoCapacity, match="a path of this computer, which machines of local") as raised:
            await harness.accept(given)
        assert raised.value.fix == "Do that, or choose another backend with --backend."
    assert (await harness.accept(job_spec(data=({"name": "set", "source": "https://example.org/set"},)))).created


async def test_a_job_with_a_path_runs_on_the_backend_that_has_it(tmp_path: Path) -> None:
    harness = await make_harness(tmp_path, FakeCloud())
    job = (await harness.accept(job_spec(backend="cloud", fallback=("local",), data=(PATHS[0],)))).job
    await harness.place()
    assert (await harness.attempt(job)).backend == "local"
    await give_back(harness.ports.db)


async def test_a_tier_gives_the_size_and_own_wishes_win(harness: ControlHarness) -> None:
    job = (await harness.accept(job_spec(tier="cpu-large", resources={"cpus": 1}))).job
    found = (await harness.world(job)).job.resources
    assert (found.cpus, found.memory_bytes, found.seconds) == (1, 4 * GiB, 600)


async def test_a_key_of_a_job_that_ended_still_names_it(harness: ControlHarness) -> None:
    first = await harness.accept(job_spec(), "key")
    await harness.host_up()
    await (await harness.runner(first.job)).end()
    assert (await harness.accept(job_spec(), "key")).job == first.job
