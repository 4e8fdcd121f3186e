from __future__ import annotations

from pathlib import Path

from crucible.control.agents.agents_url_file import AgentsUrlFile


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
    signpost = AgentsUrlFile(tmp_path / "agents.url", "http://a")
    signpost.write()
    before = signpost.path.stat()
    signpost.write()
    assert signpost.path.stat().st_ino == before.st_ino


def test_a_folder_that_is_not_there_stops_nobody(tmp_path: Path) -> None:
    AgentsUrlFile(tmp_path / "gone" / "agents.url", "http://a").write()
