from __future__ import annotations

from pathlib import Path

import pytest

from crucible.agent.machines.requests import answer
from crucible.wire.machines.folder import MachineFolder, Tags

STATE = {"node": "node-1", "deployment_folder": "dep-1"}


@pytest.fixture(autouse=True)
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".crucible/hosts/node-1/dep-1/machines"


def add(machines: Path, name: str, deployment: str = "dep-1") -> MachineFolder:
    machines.mkdir(parents=True, exist_ok=True)
    folder = MachineFolder(machines / name)
    folder.make()
    folder.write_tags(Tags(deployment, name))
    return folder


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"action": "reboot"},
        {"action": "observe"},
        {"action": "observe", "node": "../..", "deployment_folder": "dep-1"},
        {"action": "observe", "node": "node-1", "deployment_folder": "a/b"},
        {"action": "observe", "node": ".", "deployment_folder": "dep-1"},
        {"action": "end", **STATE, "machine": "../../x"},
        {"action": "start", **STATE, "machine": ""},
        {"action": "start", **STATE, "machine": "mch-1"},
    ],
)
def test_what_no_server_asks_is_refused(request_: dict[str, object], tmp_path: Path) -> None:
    found = answer(request_)
    assert (found["error"], found["what"]) == ("failed", "The host does not understand the request.")
    assert list(tmp_path.iterdir()) == []


def test_machines_are_looked_at_by_name(machines: Path) -> None:
    add(machines, "mch-1")
    found = answer({"action": "observe", **STATE, "machines": ["mch-1", "mch-2", "../x"]})
    assert found["left"] == 1
    states = found["machines"]
    assert isinstance(states, dict)
    assert {name: state for name, (state, _) in states.items()} == {"mch-1": "gone", "mch-2": "gone", "../x": "gone"}


def test_machines_are_listed_with_their_deployments(machines: Path) -> None:
    add(machines, "mch-1")
    add(machines, "mch-2", "dep-2")
    MachineFolder(machines / "no-tags").make()
    assert answer({"action": "list", **STATE}) == {"machines": [["mch-1", "dep-1"], ["mch-2", "dep-2"]]}


def test_ending_the_last_machine_removes_everything(machines: Path, tmp_path: Path) -> None:
    add(machines, "mch-1")
    add(machines, "mch-2")
    assert answer({"action": "end", **STATE, "machine": "mch-1"}) == {"gone": True, "why": "", "left": 1}
    assert answer({"action": "end", **STATE, "machine": "mch-2"}) == {"gone": True, "why": "", "left": 0}
    assert answer({"action": "end", **STATE, "machine": "mch-2"}) == {"gone": True, "why": "", "left": 0}
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_is_held_is_not_gone(machines: Path) -> None:
    with add(machines, "mch-1").hold():
        found = answer({"action": "end", **STATE, "machine": "mch-1"})
    assert (found["gone"], found["left"]) == (False, 1)


def test_cleaning_up_leaves_machines(machines: Path, tmp_path: Path) -> None:
    add(machines, "mch-1")
    assert answer({"action": "clean_up", **STATE})["left"] == ["mch-1"]
    answer({"action": "end", **STATE, "machine": "mch-1"})
    assert answer({"action": "clean_up", **STATE})["left"] == []
    assert list(tmp_path.iterdir()) == []


def test_an_agent_that_does_not_start_leaves_nothing(machines: Path, tmp_path: Path) -> None:
    broken = tmp_path / "agent.py"
    broken.write_text("raise SystemExit('the agent is broken')")
    request = {"action": "start", **STATE, "machine": "mch-1", "deployment": "dep-1", "bootstrap": {}}
    found = answer(request, str(broken))
    assert found["error"] == "not_launched"
    assert "the agent is broken" in str(found["why"])
    assert not (machines / "mch-1").exists()


def test_facts_name_the_nodes_of_the_same_home(machines: Path, tmp_path: Path) -> None:
    add(machines, "mch-1")
    (tmp_path / ".crucible/hosts/node-2").mkdir()
    found = answer({"action": "facts", "host_keys": [], "deployment_folder": "dep-1"})
    assert found["nodes"] == ["node-1", "node-2"]
    assert isinstance(found["facts"], dict)
