from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from crucible.control.runtime.compose import AgentsUrlFile, deployment_id, process_name
from crucible.core.secret import Secret

NAME = "from crucible.control.runtime.compose import process_name; print(process_name())"


def test_a_worker_has_the_same_name_all_its_life_and_shares_it_with_nobody() -> None:
    other = subprocess.run([sys.executable, "-c", NAME], capture_output=True, text=True, check=True, timeout=60)
    assert process_name() == process_name() != other.stdout.strip()
    assert len(process_name()) <= 80


def test_a_deployment_is_known_by_its_key() -> None:
    assert deployment_id(Secret("a")) == deployment_id(Secret("a")) != deployment_id(Secret("b"))


def test_the_one_on_duty_points_to_itself(tmp_path: Path) -> None:
    first, second = (
        AgentsUrlFile(tmp_path / "agents.url", "http://a"),
        AgentsUrlFile(tmp_path / "agents.url", "http://b"),
    )
    first.write()
    assert first.path.read_text() == "http://a"
    second.write()
    second.write()
    assert first.path.read_text() == "http://b"
    assert list(tmp_path.iterdir()) == [first.path], "nothing else is left"


def test_what_is_right_is_not_written_again(tmp_path: Path) -> None:
    file = AgentsUrlFile(tmp_path / "agents.url", "http://a")
    file.write()
    before = file.path.stat()
    file.write()
    assert file.path.stat().st_ino == before.st_ino


def test_a_folder_that_is_not_there_stops_nobody(tmp_path: Path) -> None:
    AgentsUrlFile(tmp_path / "gone" / "agents.url", "http://a").write()
