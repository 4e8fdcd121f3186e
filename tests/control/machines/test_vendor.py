"""A cloud's backend in a control plane: a machine is rented, claimed, taken back, replaced and paid for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.backends.vendor.harness import MoonHarness
from tests.backends.vendor.moon_queue import MoonQueueBackend
from tests.control.fakes import DEPLOYMENT
from tests.control.harness import ControlHarness, give_back, make_harness, secret, service

from crucible.control.db import schema as t
from crucible.core.lifecycle import MachineState
from crucible.core.people.identity import OWNER


class Rented:
    """A control plane that rents at Moon Cloud. Their clocks go together."""

    def __init__(self, harness: ControlHarness, moon: MoonHarness) -> None:
        self.harness, self.moon, self.cloud = harness, moon, moon.cloud
        self.cloud.now = harness.clock.now()

    async def look(self, seconds: float = 10.0) -> None:
        self.harness.clock.move(seconds)
        self.cloud.advance(seconds)
        await self.harness.performer.perform_due()
        await self.harness.poller.poll()
        await self.harness.reconciler.round()

    async def claim(self) -> str:
        """Let the newest machine's script start its agent, which claims the machine. Return the instance."""
        machine = (await self.harness.rows(t.machines))[-1]["id"]
        (instance,) = self.cloud.alive(**{"crucible-machine": machine})
        (ref,) = self.moon.backend().find(machine)
        booted = self.moon.booted(ref)
        assert booted.nonce == secret("nonce", machine).decode()
        await self.harness.agents.claim(booted.machine, booted.nonce, booted.native_id)
        await self.harness.agents.desired(booted.machine, 0, 0)
        return instance.id

    async def states(self) -> list[str]:
        return [row["state"] for row in await self.harness.rows(t.machines)]


async def make_rented(folder: Path, moon: MoonHarness) -> Rented:
    return Rented(await make_harness(folder, moon.backend()), moon)  # type: ignore[arg-type]


@pytest.fixture
async def rented(tmp_path: Path) -> AsyncIterator[Rented]:
    made = await make_rented(tmp_path, MoonHarness(tmp_path))
    yield made
    await give_back(made.harness.ports.db)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Rented]:
    made = await make_rented(tmp_path, MoonHarness(tmp_path, MoonQueueBackend))
    yield made
    await give_back(made.harness.ports.db)


async def test_a_spot_machine_is_taken_back_and_another_one_rented(rented: Rented) -> None:
    job = await rented.harness.submit(backend="moon", market="spot")
    await rented.look()
    first = await rented.claim()
    await rented.look(600.0)
    rented.cloud.interrupt(first)
    for _ in range(6):
        await rented.look()
    second = await rented.claim()
    assert second != first
    view = await service(rented.harness).jobs.view(OWNER, job)
    assert view.attempts[0].reason == "interrupted"
    assert len(rented.cloud.alive()) == 1


async def test_a_lost_answer_rents_one_machine(rented: Rented) -> None:
    await rented.harness.submit(backend="moon")
    rented.cloud.list_lag = 5.0
    rented.cloud.faults["create_instances"] = ["lost"]
    for _ in range(4):
        await rented.look()
    await rented.claim()
    assert len(rented.cloud.instances) == 1
    assert await rented.states() == [MachineState.UP.value]


async def test_a_refusal_for_capacity_leads_to_the_next_offer(rented: Rented) -> None:
    rented.cloud.sold_out = {"m1"}
    await rented.harness.submit(backend="moon")
    for _ in range(3):
        await rented.look()
    assert [instance.request["instance_type"] for instance in rented.cloud.alive()] == ["g1"]


async def test_the_vendors_meter_decides_the_cost(rented: Rented) -> None:
    job = await rented.harness.submit(backend="moon")
    await rented.look()
    await rented.claim()
    await rented.look(3590.0)
    (instance,) = rented.cloud.alive()
    instance.started_at = rented.cloud.now - 1800.0  # the vendor counts from a later start than ours
    await rented.harness.ledger.round()
    view = await service(rented.harness).jobs.view(OWNER, job)
    assert (view.cost.micros, view.cost.rate_micros_per_hour) == (100_000, 200_000)


async def test_a_machine_that_waits_too_long_is_withdrawn(queue: Rented) -> None:
    job = await queue.harness.submit(backend="moon-queue", fallback=("local",), max_wait_seconds=600.0)
    await queue.look()
    assert await queue.states() == [MachineState.QUEUED.value]
    view = await service(queue.harness).jobs.view(OWNER, job)
    assert view.waiting is not None
    assert "it waits for capacity in Moon Cloud's queue (for at most 10m 00s" in view.waiting
    await queue.look(601.0)
    for _ in range(3):
        await queue.look()
    assert queue.cloud.alive() == []
    assert (await queue.harness.attempt(job)).backend == "local"


async def test_a_machine_in_the_queue_starts_and_is_claimed(queue: Rented) -> None:
    job = await queue.harness.submit(backend="moon-queue")
    await queue.look(3600.0)
    await queue.look(3600.0)
    queue.cloud.give_capacity()
    await queue.look()
    await queue.claim()
    await queue.look()
    assert await queue.states() == [MachineState.UP.value]
    assert (await queue.harness.attempt(job)).number == 1


async def test_a_gang_waits_starts_and_claims_as_one(tmp_path: Path) -> None:
    moon = MoonHarness(tmp_path, MoonQueueBackend)
    rented = await make_rented(tmp_path, moon)
    rented.harness.submitter._most_nodes = 3
    await rented.harness.submit(backend="moon-queue", nodes=3)
    rented.cloud.faults["create_instances"] = ["lost"]
    for _ in range(4):
        await rented.look()
    assert [action for action, _ in rented.cloud.requests].count("create_instances") == 1
    assert await rented.states() == [MachineState.QUEUED.value] * 3
    rented.cloud.give_capacity()
    for instance in list(rented.cloud.alive()):
        (ref,) = (each for each in moon.backend().owned(DEPLOYMENT) if each.native_id == instance.id)
        booted = moon.booted(ref)
        await rented.harness.agents.claim(booted.machine, booted.nonce, booted.native_id)
        await rented.harness.agents.desired(booted.machine, 0, 0)
    await rented.look()
    assert await rented.states() == [MachineState.UP.value] * 3
    await give_back(rented.harness.ports.db)
