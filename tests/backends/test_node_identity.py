"""Test that a computer has one identity, whatever backends reach it."""

from __future__ import annotations

from pathlib import Path

from crucible.backends.node_identity import NodeFacts, find_clones, node_id, own_node_id, read_own_facts

COMPUTER = NodeFacts(machine_id="4f1c", boot_id="b-1", host_key="ssh-ed25519 AAAA")


def test_the_machine_id_is_the_identity_and_is_not_shown() -> None:
    again = NodeFacts(machine_id="4f1c", boot_id="b-2", host_key="ssh-ed25519 BBBB")
    assert node_id(COMPUTER) == node_id(again), "a reboot and new host keys change nothing"
    assert "4f1c" not in node_id(COMPUTER)


def test_without_a_machine_id_the_host_key_and_the_boot_id_are() -> None:
    bare = NodeFacts(boot_id="b-1", host_key="ssh-ed25519 AAAA")
    assert node_id(bare) != node_id(NodeFacts(boot_id="b-2", host_key="ssh-ed25519 AAAA"))
    assert node_id(bare) != node_id(NodeFacts(boot_id="b-1", host_key="ssh-ed25519 BBBB"))
    assert node_id(NodeFacts(boot_id="b-1")) != node_id(NodeFacts(boot_id="b-2"))


def test_two_that_run_with_one_machine_id_are_clones() -> None:
    clone = NodeFacts(machine_id="4f1c", boot_id="b-2", host_key="ssh-ed25519 BBBB")
    assert find_clones([COMPUTER, COMPUTER, clone]) == {2}, "the same computer twice is no clone"
    assert node_id(clone, is_clone=True) != node_id(COMPUTER)
    rebooted = NodeFacts(machine_id="4f1c", boot_id="b-3", host_key="ssh-ed25519 BBBB")
    assert node_id(clone, is_clone=True) == node_id(rebooted, is_clone=True), "a clone keeps its identity too"


def test_hosts_without_a_machine_id_are_no_clones() -> None:
    assert not find_clones([NodeFacts(boot_id="b-1"), NodeFacts(boot_id="b-2")])


def test_this_computers_facts_are_read_from_its_files(tmp_path: Path) -> None:
    for path, text in {
        "etc/machine-id": "4f1c\n",
        "proc/sys/kernel/random/boot_id": "b-1\n",
        "etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA root@box\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert read_own_facts(tmp_path) == COMPUTER
    assert own_node_id(tmp_path) == node_id(COMPUTER)


def test_a_computer_without_these_files_still_has_an_identity(tmp_path: Path) -> None:
    assert own_node_id(tmp_path) == own_node_id(tmp_path)
    assert read_own_facts(tmp_path).boot_id
