"""Test the record of a job's exit that one runner leaves to the next."""

from __future__ import annotations

from pathlib import Path

from crucible.agent.runner.exit_record import LOST, ExitData, ExitRecord


def test_who_finishes_for_another_says_what_that_one_wrote_down(tmp_path: Path) -> None:
    ended = ExitData(after=7, data={"code": 3, "cause": "exit"})
    ExitRecord(tmp_path / "exited").write(ended)
    successor = ExitRecord(tmp_path / "exited")
    assert successor.read() == ended
    assert successor.exit_data() == ended.data


def test_a_runner_that_wrote_nothing_down_was_lost(tmp_path: Path) -> None:
    record = ExitRecord(tmp_path / "exited")
    assert record.read() is None
    assert record.exit_data() == LOST


def test_what_was_said_counts_though_the_disk_did_not_take_it(tmp_path: Path) -> None:
    record = ExitRecord(tmp_path / "no folder" / "exited")
    record.write(ExitData(after=0, data={"code": 0}))
    assert record.exit_data() == {"code": 0}
    assert record.read() is None
