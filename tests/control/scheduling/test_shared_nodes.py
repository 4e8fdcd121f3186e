"""One computer behind several backends, several computers behind one, and machines from before nodes were recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, give_back, join, make_harness, other_worker

from crucible.backends.base import Capabilities, Reach
from crucible.control.db import schema as t
from crucible.control.db.migrate import create_schema
from crucible.control.db.postgres.database import PostgresDb
from crucible.core.compute.offers import Need, Node, Nodes, Offer
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle import facts as f

HERE = Node("node-local", "this computer")


@dataclass
class Hosts(FakeBackend):
    """A backend that reaches these computers; one of them may be the computer of `local`."""

    name: str = "ssh"
    nodes: tuple[Node, ...] = (HERE,)

    def offers(self, need: Need) -> Sequence[Offer]:
        self._reach()
        return [Offer(self.name, "here", node.name, self.capacity, 0, node=node) for node in self.nodes]


async def with_hosts(scratch: Path, *nodes: Node, **more: Any) -> ControlHarness:
    return await make_harness(scratch, Hosts(nodes=nodes, **more))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    """A harness whose backend `ssh` reaches the computer of `local`."""
    harness = await with_hosts(tmp_path, HERE)
    yield harness
    await give_back(harness.ports.db)


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    """A harness whose backend `ssh` reaches three computers."""
    harness = await with_hosts(tmp_path, *(Node(f"node-{n}", f"host{n}") for n in range(3)))
    yield harness
    await give_back(harness.ports.db)


async def states(harness: ControlHarness, *jobs: str) -> list[str]:
    return [(await harness.world(job)).job.state.value for job in jobs]


async def node_of(harness: ControlHarness, job: str) -> str:
    return (await harness.machine((await harness.attempt(job)).slots[0].machine)).node


# One computer behind two backends


async def test_a_computer_behind_two_backends_is_sold_once(harness: ControlHarness) -> None:
    here = await harness.submit(cpus=3)
    there = await harness.submit(cpus=3, backend="ssh")
    assert await states(harness, here, there) == ["provisioning", "queued"]
    assert (await harness.world(there)).job.waiting.startswith("waits for 3 CPUs: 1 free, held by job-")
    assert await states(harness, await harness.submit(cpus=1, backend="ssh")) == ["queued"], "there is somebody ahead"
    await harness.host_up()
    await (await harness.runner(here)).end()
    assert await states(harness, there) == ["provisioning"]
    assert {m["backend"] for m in await harness.rows(t.machines)} == {"local", "ssh"}, "each has its own agent there"


async def test_a_submission_waits_behind_those_who_wait_for_the_same_computer_by_another_backend(
    harness: ControlHarness,
) -> None:
    elsewhere = await other_worker(harness, "w2")
    jobs = [await elsewhere.submit(cpus=3), await elsewhere.submit(cpus=4, backend="ssh")]
    late = await elsewhere.submit(cpus=1)
    assert await states(harness, *jobs, late) == ["provisioning", "queued", "queued"]


async def test_gpus_are_given_once_whatever_backend_gives_them(harness: ControlHarness) -> None:
    jobs = [await harness.submit(gpus=1, backend=backend) for backend in ("local", "ssh", "ssh")]
    assert [(await harness.attempt(job)).slots[0].allocation.gpus for job in jobs[:2]] == [(0,), (1,)]
    assert await states(harness, jobs[2]) == ["queued"]


async def test_a_node_that_ends_with_one_backend_may_be_used_by_another(harness: ControlHarness) -> None:
    _, runner = await harness.running(cpus=4)
    await runner.end()
    await harness.change_machine((await harness.machine()).id, f.Unwanted("nothing runs here"))
    there, here = await harness.submit(cpus=1, backend="ssh"), await harness.submit(cpus=1)
    assert await states(harness, there, here) == ["provisioning", "queued"]
    assert (await harness.world(here)).job.waiting == "waits until the last agent on this computer has ended"


async def test_limits_of_attempts_count_all_backends(tmp_path: Path) -> None:
    harness = await with_hosts(tmp_path, replace(HERE, max_attempts=1))
    await harness.submit(cpus=1)
    waiting = await harness.submit(cpus=1, backend="ssh")
    why = (await harness.world(waiting)).job.waiting
    assert why.startswith("waits for a turn: 1 job may run there at once, now job-")
    await give_back(harness.ports.db)


async def test_submissions_that_race_for_one_computer_never_share_its_slots(
    harness: ControlHarness, postgres_url: str, tmp_path: Path
) -> None:
    db = PostgresDb(postgres_url, server_clock=False)
    await db.write(create_schema)
    servers = []
    for name in ("w1", "w2"):
        ports = replace(harness.ports, db=db, worker=name)
        server = join(ports, harness.clock, harness.calls, harness.backends, tmp_path)
        await server.offers.refresh()
        servers.append(server)
    racing = [server.submit(cpus=1.5, backend=name) for server in servers for name in ("local", "ssh") for _ in "123"]
    await asyncio.gather(*racing)
    for server in servers:
        await server.duties.renew(db, server.clock)
        await server.place()
    jobs = [row["state"] for row in await servers[0].rows(t.jobs)]
    assert sorted(jobs) == ["provisioning"] * 2 + ["queued"] * 10, "4 CPUs hold two of them"
    await db.close()


# Several computers behind one backend


async def test_jobs_are_spread_over_nodes_as_they_fit(hosts: ControlHarness) -> None:
    jobs = [await hosts.submit(cpus=3, backend="ssh") for _ in range(4)]
    assert [await node_of(hosts, job) for job in jobs[:3]] == ["node-0", "node-1", "node-2"]
    assert (await hosts.world(jobs[3])).job.waiting.startswith("host0 waits for 3 CPUs: 1 free, held by job-")


async def test_attempts_on_a_node_share_its_machine(hosts: ControlHarness) -> None:
    jobs = [await hosts.submit(cpus=2, backend="ssh") for _ in range(4)]
    machines = [(await hosts.attempt(job)).slots[0].machine for job in jobs]
    assert machines[0] == machines[1] != machines[2] == machines[3]
    assert await hosts.count(t.machines) == 2


async def test_a_node_whose_agent_ends_leaves_the_others(hosts: ControlHarness) -> None:
    job, runner = await hosts.running(backend="ssh")
    await runner.end()
    machine = await hosts.machine()
    await hosts.change_machine(machine.id, f.Unwanted("nothing runs here"))
    assert [await node_of(hosts, job)] == ["node-0"]
    assert await node_of(hosts, await hosts.submit(backend="ssh")) == "node-1"


async def test_a_machine_of_its_own_holds_its_slots_until_it_is_gone(tmp_path: Path) -> None:
    own = Capabilities(reach=Reach.LOOPBACK, capacity=Nodes(shared=False), bills=False)
    harness = await with_hosts(tmp_path, HERE, capabilities=own)
    job = await harness.submit(cpus=3, backend="ssh")
    await harness.host_up()
    await (await harness.runner(job)).end()
    waiting = await harness.submit(cpus=3)
    assert (await harness.machine()).state is MachineState.RELEASING
    assert await states(harness, waiting) == ["queued"]
    await harness.performer.perform_due()
    await harness.place()
    assert await states(harness, waiting) == ["provisioning"]
    await give_back(harness.ports.db)


async def test_a_gang_gets_several_nodes_in_one_transaction(hosts: ControlHarness) -> None:
    hosts.submitter._most_nodes = 3
    await hosts.submit(cpus=1, backend="ssh")
    gang = await hosts.submit(cpus=4, backend="ssh", nodes=3)
    assert (await hosts.world(gang)).job.waiting == "waits for 3 nodes at once: there is room on 2"
    await hosts.host_up()
    first = (await hosts.rows(t.jobs))[0]["id"]
    await (await hosts.runner(first)).end()
    attempt = await hosts.attempt(gang)
    assert [slot.rank for slot in attempt.slots] == [0, 1, 2]
    assert [(await hosts.machine(slot.machine)).node for slot in attempt.slots] == ["node-0", "node-1", "node-2"]


# Machines of version 0.1.0


async def made_before_nodes(harness: ControlHarness) -> None:
    """Let all machines be as version 0.1.0 left them."""
    await harness.sql(lambda conn: conn.execute(update(t.machines).values(node="")).rowcount)


async def test_what_runs_on_an_old_machine_counts_on_the_node_of_its_backend(harness: ControlHarness) -> None:
    await harness.running(cpus=3)
    await made_before_nodes(harness)
    jobs = [await harness.submit(cpus=2, backend=backend) for backend in ("local", "ssh")]
    assert await states(harness, *jobs) == ["queued", "queued"]


async def test_an_old_machine_is_used_further(harness: ControlHarness) -> None:
    await harness.running(cpus=3)
    await made_before_nodes(harness)
    job = await harness.submit(cpus=1)
    assert await states(harness, job) == ["starting"]
    assert await harness.count(t.machines) == 1


async def test_an_old_machine_that_ends_is_waited_for(harness: ControlHarness) -> None:
    _, runner = await harness.running(cpus=3)
    await runner.end()
    await made_before_nodes(harness)
    await harness.change_machine((await harness.machine()).id, f.Unwanted("nothing runs here"))
    job = await harness.submit(cpus=1)
    assert (await harness.world(job)).job.waiting == "waits until the last agent on this computer has ended"
