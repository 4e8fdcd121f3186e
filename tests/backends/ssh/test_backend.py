"""What the backend concludes from the answers of its hosts. `tests/ssh` asks real ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.backends.conformance import DEPLOYMENT, STRANGER
from tests.backends.ssh.test_hosts import OWN, FakeConnection

from crucible.backends.base import PartlyUnreachable
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
from crucible.backends.ssh.backend import SshBackend
from crucible.backends.ssh.connection import HostConnection
from crucible.backends.ssh.hosts import Hosts
from crucible.backends.ssh.settings import SshSettings
from crucible.core.errors import Unreachable
from crucible.core.ids import Prefix, make_id, short


class FakeHost(FakeConnection):
    """A host with machines, each with the deployment of its tag."""

    def __init__(self, target: str, folder: Path, **facts: object) -> None:
        super().__init__(target, folder, **facts)
        self._lock = threading.RLock()
        self._holds = 0
        self.machines: list[tuple[str, str]] = []

    def ask(self, ask: str, *args: object, **parameters: object) -> dict[str, object]:
        answer = super().ask(ask, *args, **parameters)
        return {"machines": self.machines} if ask == "list" else answer


def make_backend(folder: Path, hosts: Sequence[FakeHost]) -> SshBackend:
    def table(_: Sequence[HostConnection], deployment: str, file: Path) -> Hosts:
        return Hosts(hosts, deployment, file, lambda: OWN)

    settings = SshSettings(hosts=tuple(each.host for each in hosts))
    agent = AgentFile(folder / "agent.pyz", "0" * 64)
    context = BackendContext(settings, folder, folder / "agents.address", agent, "python3", deployment="dep-1")
    return SshBackend(context, table)


def test_the_machines_of_hosts_that_answer_are_listed_while_another_does_not(tmp_path: Path) -> None:
    up, down = FakeHost("a", tmp_path), FakeHost("b", tmp_path, machine_id="id-2", host_key="key-2")
    backend = make_backend(tmp_path, [up, down])
    ours, theirs, there = (make_id(Prefix.MACHINE, 1, number) for number in (1, 2, 3))
    up.machines = [(ours, DEPLOYMENT), (theirs, STRANGER)]
    down.machines = [(there, DEPLOYMENT)]
    assert [ref.machine for ref in backend.owned(DEPLOYMENT)] == [ours, there]
    down.facts = None
    with pytest.raises(PartlyUnreachable) as caught:
        backend.owned(DEPLOYMENT)
    assert [ref.machine for ref in caught.value.found] == [ours]
    assert caught.value.why == "Nothing is known about machines on b."


def test_a_machine_that_cannot_be_ended_says_how_to_declare_it_lost(tmp_path: Path) -> None:
    host = FakeHost("a", tmp_path)
    backend = make_backend(tmp_path, [host])
    machine = make_id(Prefix.MACHINE, 1, 1)
    host.machines = [(machine, DEPLOYMENT)]
    (ref,) = backend.owned(DEPLOYMENT)
    host.facts = None
    with pytest.raises(Unreachable) as caught:
        backend.terminate(ref)
    assert caught.value.fix == f"If the host is lost for good: crucible machines terminate {short(machine)} --lost"
