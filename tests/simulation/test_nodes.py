"""Test the simulated computers and the backends over them, and the check of their slots."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.books import Books
from tests.simulation.test_world import environment

from crucible.backends.base import LaunchUnknown, MachineOrder, Reach, Seen
from crucible.core.compute.offers import Need, Node
from crucible.core.compute.resources import Capacity, GiB
from crucible.core.errors import Unreachable
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import RunningProgram
from crucible.simulation.faults.virtual_loop import VirtualLoop
from crucible.simulation.faults.world.computer import Computer
from crucible.simulation.faults.world.layout import make_layout
from crucible.simulation.faults.world.node_backend import SimulatedNodeBackend
from crucible.wire.documents.bootstrap import Bootstrap


def test_programs_of_all_backends_of_a_computer_count_together(books: Books) -> None:
    books.truth.cpus = {"laptop": 2.0}
    for n in (1, 2):
        books.truth.started(RunningProgram(f"job-{n}", f"att-{n}", f"machine-{n}", 0, node="laptop", cpus=1.0))
        assert books.broken == []
    books.truth.started(RunningProgram("job-3", "att-3", "machine-3", 0, node="laptop", cpus=1.0))
    assert books.broken == ["programs use 3 of 2 CPUs of laptop"]


def test_a_host_that_is_away_answers_nothing_and_is_itself_again_when_it_is_back() -> None:
    loop = VirtualLoop()
    host = Computer(Node("host-1", "host 1"), Capacity(cpus=1, memory_bytes=GiB))
    faults = FaultRates(RandomStream(1, "weather"), loop.time)
    faults.end()
    backend = SimulatedNodeBackend("hosts", [host], environment(loop), faults, shared=False, reach=Reach.TUNNEL)
    call = backend.call(MachineOrder("mch-1", "dep-1", backend.offers(Need())[0]))
    nonce = [Bootstrap("mch-1", nonce="nonce")]

    async def scene() -> None:
        (ref,) = backend.launch(call, nonce)
        assert backend.poll([ref])[0].seen is Seen.UP
        host.disconnect()
        assert host.machines[0].link.is_cut
        assert backend.offers(Need())[0].why_not
        assert backend.poll([ref])[0].seen is Seen.UNREACHABLE
        with pytest.raises(LaunchUnknown):
            backend.launch(call, nonce)
        for ask in (lambda: backend.find("mch-1"), lambda: backend.terminate(ref)):
            with pytest.raises(Unreachable):
                ask()
        host.reconnect()
        assert [backend.poll([ref])[0].seen, *backend.find("mch-1")] == [Seen.UP, ref]
        host.restart()
        assert backend.poll([ref])[0].seen is Seen.HALTED
        backend.launch(call, nonce)
        assert backend.poll([ref])[0].seen is Seen.UP
        backend.terminate(ref)
        assert backend.poll([ref])[0].seen is Seen.GONE
        assert (host.machines, list(backend.find("mch-1")), list(backend.owned("dep-1"))) == ([], [], [])
        await asyncio.sleep(0)

    loop.run_until_complete(scene())


def test_worlds_differ() -> None:
    loop = VirtualLoop()
    faults = FaultRates(RandomStream(1, "weather"), loop.time)
    layouts = [make_layout(loop, environment(loop), faults, RandomStream(seed, "layout")) for seed in range(60)]
    names = {tuple(layout.extra_names) for layout in layouts}
    assert {(), ("containers",), ("hosts",), ("cluster",), ("containers", "hosts", "cluster")} <= names
    assert {backend.capabilities.shares_machines for one in layouts for backend in one.backends[1:]} == {True, False}
