from __future__ import annotations

from pathlib import Path

from crucible.control.agents.agents_url_file import Signpost


def test_the_one_on_duty_points_to_itself(tmp_path: Path) -> None:
    first, second = Signpost(tmp_path / "agents.url", "http://a"), Signpost(tmp_path / "agents.url", "http://b")
    first.point()
    assert first.path.read_text() == "http://a"
    second.point()
    second.point()
    assert first.path.read_text() == "http://b"
    assert list(tmp_path.iterdir()) == [first.path], "nothing else is left"


def test_what_is_right_is_not_written_again(tmp_path: Path) -> None:
    signpost = Signpost(tmp_path / "agents.url", "http://a")
    signpost.point()
    before = signpost.path.stat()
    signpost.point()
    assert signpost.path.stat().st_ino == before.st_ino


def test_a_folder_that_is_not_there_stops_nobody(tmp_path: Path) -> None:
    Signpost(tmp_path / "gone" / "agents.url", "http://a").point()
