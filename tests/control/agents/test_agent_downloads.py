"""The agent file for machines that boot from it: who gets it, when it is stored, and how long."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness
from tests.control.upkeep.test_retention import retention

from crucible.backends.base import LaunchCall, MachineOrder, MachineRef, Reach
from crucible.backends.bootstrap import AgentFile, script_template
from crucible.control.agents.agent_downloads import AgentDownloads
from crucible.control.objects import gc_marks
from crucible.control.runtime.services import Services
from crucible.core.channels import Channel
from crucible.core.errors import NotFound
from crucible.core.lifecycle import MachineState
from crucible.core.lifecycle import facts as f
from crucible.storage import Store, StoreUnreachable
from crucible.storage.layout import agent_key
from crucible.wire.documents.bootstrap import Bootstrap

DATA = b"the agent" * 20_000


class Watched:
    """A store that notes what is put, and can be down."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.puts: list[str] = []
        self.down = False

    def put(self, key: str, *given: Any, **more: Any) -> Any:
        self.puts.append(key)
        return self._inner.put(key, *given, **more)

    def size(self, key: str) -> int | None:
        if self.down:
            raise StoreUnreachable("No answer.")
        return self._inner.size(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class BootingBackend(FakeBackend):
    """A backend whose machines boot by the script."""

    agent: AgentFile

    def call(self, order: MachineOrder) -> LaunchCall:
        script = script_template(self.agent, "~/machine")
        return LaunchCall(self.name, order.machine, "make", {"deployment": order.deployment, "script": script})

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        self.stored_at_launch = self.store.size(agent_key(self.agent.sha256))
        return super().launch(call, bootstraps)

    store: Store
    stored_at_launch: int | None = None


def make_agent(folder: Path, data: bytes = DATA) -> AgentFile:
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / f"agent-{sha256}.pyz"
    path.write_bytes(data)
    return AgentFile(path, sha256)


@pytest.fixture
def agent(tmp_path: Path) -> AgentFile:
    return make_agent(tmp_path)


@pytest.fixture
def store(harness: ControlHarness) -> Watched:
    return Watched(harness.ports.store)


@pytest.fixture
def downloads(harness: ControlHarness, store: Watched, agent: AgentFile) -> AgentDownloads:
    return AgentDownloads(replace(harness.ports, store=store), agent)  # type: ignore[arg-type]


async def booting(harness: ControlHarness, agent: AgentFile, store: Watched, **more: Any) -> ControlHarness:
    """Return the same control plane with a backend whose machines boot from this agent file."""
    backend = BootingBackend()
    backend.agent, backend.store = agent, store  # type: ignore[assignment]
    ports, deployment = replace(harness.ports, store=store), replace(harness.deployment, agent_file=agent, **more)  # type: ignore[arg-type]
    services = Services(ports, {"local": backend}, deployment)
    made = ControlHarness(
        clock=harness.clock, calls=harness.calls, backend=backend, backends={"local": backend}, services=services
    )
    await made.offers.refresh()
    await made.duties.renew(ports.db, harness.clock)
    return made


async def end_machine(harness: ControlHarness) -> None:
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.Unwanted("enough"))
    harness.backend.made.clear()
    for _ in range(10):
        await harness.performer.perform_due()
        harness.clock.move(60)
    assert (await harness.machine(machine)).state is MachineState.GONE


class TestServe:
    async def test_the_running_versions_file_comes_from_disk(
        self, downloads: AgentDownloads, store: Watched, agent: AgentFile
    ) -> None:
        store.down = True
        file, reader = await downloads.open(agent.sha256)
        assert (file.size, file.sha256) == (len(DATA), agent.sha256)
        assert b"".join(reader.open_range(file.key, 0, file.size)) == DATA
        assert b"".join(reader.open_range(file.key, 70_000, 140_001)) == DATA[70_000:140_001]

    async def test_an_older_versions_file_comes_from_the_store(
        self, downloads: AgentDownloads, store: Watched, tmp_path: Path
    ) -> None:
        older = make_agent(tmp_path, b"older")
        with pytest.raises(NotFound, match="no agent file"):
            await downloads.open(older.sha256)
        store.put(agent_key(older.sha256), b"older")
        file, reader = await downloads.open(older.sha256)
        assert b"".join(reader.open_range(file.key, 0, file.size)) == b"older"

    async def test_it_comes_from_the_store_if_the_disk_has_lost_it(
        self, downloads: AgentDownloads, agent: AgentFile
    ) -> None:
        await downloads.publish(agent.sha256)
        agent.path.unlink()
        file, reader = await downloads.open(agent.sha256)
        assert b"".join(reader.open_range(file.key, 0, file.size)) == DATA


class TestPublish:
    async def test_it_is_stored_once(self, downloads: AgentDownloads, store: Watched, agent: AgentFile) -> None:
        for _ in range(3):
            await downloads.publish(agent.sha256)
        assert store.puts == [agent_key(agent.sha256)]
        assert store.get(agent_key(agent.sha256)) == DATA

    async def test_another_versions_file_cannot_be_stored(self, downloads: AgentDownloads, store: Watched) -> None:
        await downloads.publish("0" * 64)
        assert store.puts == []

    async def test_it_is_there_before_the_machine_is_launched(
        self, harness: ControlHarness, store: Watched, agent: AgentFile
    ) -> None:
        harness = await booting(harness, agent, store)
        await harness.submit()
        assert store.puts == []
        await harness.performer.perform_due()
        assert isinstance(harness.backend, BootingBackend)
        assert harness.backend.stored_at_launch == len(DATA)

    async def test_a_machine_whose_agent_the_backend_starts_itself_needs_none(
        self, harness: ControlHarness, store: Watched
    ) -> None:
        await harness.submit()
        await harness.performer.perform_due()
        assert len(harness.backend.launches) == 1
        assert list(harness.ports.store.list("agents")) == []

    async def test_a_store_that_is_down_delays_the_launch(
        self, harness: ControlHarness, store: Watched, agent: AgentFile
    ) -> None:
        harness = await booting(harness, agent, store)
        await harness.submit()
        store.down = True
        await harness.performer.perform_due()
        assert harness.backend.launches == []
        store.down = False
        harness.clock.move(60)
        await harness.performer.perform_due()
        assert len(harness.backend.launches) == 1

    async def test_through_the_store_the_bootstrap_says_where_it_is(
        self, harness: ControlHarness, store: Watched, agent: AgentFile, tmp_path: Path
    ) -> None:
        harness = await booting(harness, agent, store, store_url=str(tmp_path), channel=Channel.STORE)
        harness.backend.capabilities = replace(harness.backend.capabilities, reach=Reach.SHARED_DIR)
        await harness.submit()
        await harness.performer.perform_due()
        (given,) = harness.backend.bootstraps
        assert given.store == {"folder": str(tmp_path), "agent_file": str(tmp_path / agent_key(agent.sha256))}


class TestRetention:
    async def test_the_current_one_stays_and_unused_ones_go(
        self, harness: ControlHarness, downloads: AgentDownloads, store: Watched, agent: AgentFile
    ) -> None:
        await downloads.publish(agent.sha256)
        store.put(agent_key("0" * 64), b"older")
        await retention(harness, current_agent=agent.sha256).round()
        assert [key for key, _ in store.list("agents")] == [agent_key(agent.sha256)]

    async def test_one_that_a_live_machine_boots_from_stays_until_it_is_gone(
        self, harness: ControlHarness, store: Watched, agent: AgentFile
    ) -> None:
        harness = await booting(harness, agent, store)
        await harness.submit()
        await harness.performer.perform_due()
        upgraded = retention(harness, current_agent="1" * 64)
        await upgraded.round()
        assert [key for key, _ in store.list("agents")] == [agent_key(agent.sha256)]
        await end_machine(harness)
        await upgraded.round()
        assert list(store.list("agents")) == []

    async def test_a_launch_waits_for_a_removal_under_way_and_stores_it_again(
        self, harness: ControlHarness, downloads: AgentDownloads, store: Watched, agent: AgentFile
    ) -> None:
        key = agent_key(agent.sha256)
        await downloads.publish(agent.sha256)
        await harness.sql(lambda conn: gc_marks.claim_removal(conn, [key], "w2", harness.clock.now()))
        store.delete(key)  # the other process dies before it says so
        before = harness.clock.now()
        await downloads.publish(agent.sha256)
        assert harness.clock.now() > before
        assert store.get(key) == DATA
