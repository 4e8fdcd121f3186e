"""Which hosts are the same computer, and what is kept of them. `tests/ssh` asks real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from crucible.backends.node_identity import NodeFacts, node_id
from crucible.backends.ssh.connection import HostConnection, HostFailed
from crucible.backends.ssh.hosts import FRESH_SECONDS, Hosts, on_each
from crucible.backends.ssh.openssh import HostUnreachable, OpenSsh
from crucible.backends.ssh.settings import SshHost

OWN = NodeFacts("own-machine-id", "own-boot-id", "own-key")


class FakeConnection(HostConnection):
    """A host that answers with `facts`, or does not."""

    def __init__(self, target: str, folder: Path, **facts: object) -> None:
        self.host = SshHost.model_validate(target)
        self.ssh = OpenSsh(folder, folder)
        self.facts: Mapping[str, object] | None = facts
        self.asked = 0

    def ask(self, ask: str, *_: object, **__: object) -> dict[str, object]:
        self.asked += 1
        if self.facts is None:
            raise HostUnreachable("The host does not answer.")
        return {"facts": {**FACTS, **self.facts}, "nodes": []}

    def retry_now(self) -> None:
        pass


FACTS: Mapping[str, object] = {
    "hostname": "box",
    "user": "ann",
    "system": "Linux",
    "python": "3.11.2",
    "machine_id": "id-1",
    "boot_id": "boot-1",
    "host_key": "key-1",
    "cpus": 4,
    "memory_bytes": 8,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_hosts(folder: Path, connections: Sequence[HostConnection], clock: Clock | None = None) -> Hosts:
    return Hosts(connections, "dep-1", folder / "hosts.json", lambda: OWN, clock or Clock())


def test_a_host_is_asked_again_only_when_its_facts_are_old(folder: Path) -> None:
    connection, clock = FakeConnection("a", folder), Clock()
    hosts = make_hosts(folder, [connection], clock)
    hosts.discover()
    hosts.discover()
    assert connection.asked == 1
    hosts.discover(again=True)
    clock.now += FRESH_SECONDS
    hosts.discover()
    assert connection.asked == 3


def test_one_that_fails_keeps_what_is_known_and_says_why(folder: Path) -> None:
    first, second = FakeConnection("a", folder), FakeConnection("b", folder, machine_id="id-2")
    hosts = make_hosts(folder, [first, second])
    before = hosts.discover()
    first.facts = None
    after = hosts.discover(again=True)
    assert (after[0].node, after[0].facts) == (before[0].node, before[0].facts)
    assert isinstance(after[0].error, HostUnreachable)
    assert after[1].error is None


def test_facts_of_an_unknown_kind_are_an_error_of_that_host(folder: Path) -> None:
    (host,) = make_hosts(folder, [FakeConnection("a", folder, cpus="many")]).discover()
    assert isinstance(host.error, HostFailed)


def test_the_next_server_knows_the_node_of_a_host_that_is_down(folder: Path) -> None:
    (known,) = make_hosts(folder, [FakeConnection("a", folder)]).discover()
    down = FakeConnection("a", folder)
    down.facts = None
    after = make_hosts(folder, [down])
    assert after.find(known.node.id) is not None
    assert after.discover()[0].node == known.node


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": {"cpus": 1}}'])
def test_a_broken_file_is_not_used(folder: Path, text: str) -> None:
    (folder / "hosts.json").write_text(text)
    (host,) = make_hosts(folder, [FakeConnection("a", folder)]).list()
    assert host.facts is None


class TestIdentity:
    def test_the_machine_id_counts(self, folder: Path) -> None:
        (host,) = make_hosts(folder, [FakeConnection("a", folder)]).discover()
        assert host.node.id == node_id(NodeFacts("id-1"))
        assert (host.is_here, host.is_clone, host.same_as) == (False, False, "")

    def test_two_names_are_one_computer(self, folder: Path) -> None:
        connections = [FakeConnection("a", folder), FakeConnection("ann@b", folder)]
        first, second = make_hosts(folder, connections).discover()
        assert first.node.id == second.node.id
        assert (first.same_as, second.same_as) == ("", "a")

    def test_copies_are_told_apart_and_the_first_keeps_its_identity(self, folder: Path) -> None:
        copy = FakeConnection("b", folder, boot_id="boot-2", host_key="key-2")
        first, second = make_hosts(folder, [FakeConnection("a", folder), copy]).discover()
        assert first.node.id == node_id(NodeFacts("id-1"))
        assert second.node.id == node_id(NodeFacts("id-1", "boot-2", "key-2"), is_clone=True)
        assert (first.is_clone, second.is_clone) == (False, True)

    def test_a_copy_of_the_servers_own_computer(self, folder: Path) -> None:
        copy = FakeConnection("b", folder, machine_id=OWN.machine_id)
        (host,) = make_hosts(folder, [copy]).discover()
        assert (host.is_here, host.is_clone) == (False, True)

    def test_the_servers_own_computer(self, folder: Path) -> None:
        same = FakeConnection("b", folder, machine_id=OWN.machine_id, boot_id=OWN.boot_id, host_key=OWN.host_key)
        (host,) = make_hosts(folder, [same]).discover()
        assert (host.is_here, host.node.id) == (True, node_id(OWN))

    def test_a_restart_between_two_looks_makes_no_copy(self, folder: Path) -> None:
        """The second name is asked only after the restart of the one computer that both mean."""
        first, second, clock = FakeConnection("a", folder), FakeConnection("b", folder), Clock()
        hosts = make_hosts(folder, [first, second], clock)
        hosts.discover()
        first.facts, second.facts = None, {"boot_id": "boot-2"}
        clock.now += FRESH_SECONDS
        one, other = hosts.discover()
        assert one.node.id == other.node.id
        assert not other.is_clone

    def test_the_setting_node_wins(self, folder: Path) -> None:
        connection = FakeConnection("a", folder)
        connection.host = SshHost(target="a", node="rack-7", max_attempts=2)
        (host,) = make_hosts(folder, [connection]).discover()
        assert (host.node.id, host.node.max_attempts) == ("rack-7", 2)

    def test_a_host_that_never_answered_is_nobodys_node(self, folder: Path) -> None:
        connections = [FakeConnection("a", folder), FakeConnection("b", folder)]
        for connection in connections:
            connection.facts = None
        first, second = make_hosts(folder, connections).discover()
        assert first.node.id != second.node.id
        assert not second.same_as


def test_what_is_late_is_none() -> None:
    assert on_each(lambda wait: wait(), [lambda: 1, lambda: 2], 5) == [1, 2]
    assert on_each(lambda item: item, [], 5) == []
