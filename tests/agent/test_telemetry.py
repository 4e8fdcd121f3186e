"""What a job reports, and what is read out of its output beside it."""

from __future__ import annotations

import json
from pathlib import Path

from crucible.agent.output import OutputParser
from crucible.agent.telemetry import MESSAGE_POINTS, ReportFile, Telemetry


def printed(telemetry: Telemetry, *lines: str) -> None:
    parser = OutputParser()
    for line in lines:
        for seen in parser.feed(line):
            telemetry.see(seen)


def reported(telemetry: Telemetry, file: Path, step: int, **metrics: float) -> None:
    with file.open("a") as out:
        out.write(json.dumps({"crucible": 1, "step": step, "metrics": metrics}) + "\n")
    reports = ReportFile(file, telemetry)
    reports.read()


def series(telemetry: Telemetry) -> dict[str, list[tuple[object, object]]]:
    points = telemetry.take_points() or {}
    return {name: [(step, value) for step, value, _ in listed] for name, listed in points.items()}


def test_what_is_printed_becomes_points_where_nothing_is_reported(tmp_path: Path) -> None:
    telemetry = Telemetry()
    printed(telemetry, "step 1 loss 0.5", "step 2 loss 0.4")
    assert series(telemetry) == {"loss": [(1, 0.5), (2, 0.4)]}


def test_what_is_reported_counts_and_not_what_is_printed_under_the_same_name(tmp_path: Path) -> None:
    """Two curves in one series would be judged as one that jumps."""
    telemetry = Telemetry()
    printed(telemetry, "step 1 loss 9.0")
    reported(telemetry, tmp_path / "one", 1, loss=0.5)
    printed(telemetry, "step 2 loss 8.0 accuracy 0.7")
    reported(telemetry, tmp_path / "two", 2, loss=0.4)
    assert series(telemetry) == {"loss": [(1, 0.5), (2, 0.4)], "accuracy": [(2, 0.7)]}


def test_what_was_sent_before_the_first_report_stays_sent(tmp_path: Path) -> None:
    telemetry = Telemetry()
    printed(telemetry, "step 1 loss 9.0")
    assert series(telemetry) == {"loss": [(1, 9.0)]}
    reported(telemetry, tmp_path / "one", 2, loss=0.4)
    assert series(telemetry) == {"loss": [(2, 0.4)]}


def test_points_that_are_forgotten_do_not_count_as_waiting(tmp_path: Path) -> None:
    telemetry = Telemetry()
    printed(telemetry, *(f"step {step} loss 9.0" for step in range(MESSAGE_POINTS)))
    reported(telemetry, tmp_path / "one", 1, loss=0.5)
    assert telemetry._pending == 1
    assert series(telemetry) == {"loss": [(1, 0.5)]}
    assert telemetry._pending == 0


def test_progress_is_read_from_both(tmp_path: Path) -> None:
    telemetry = Telemetry()
    reported(telemetry, tmp_path / "one", 1, loss=0.5)
    printed(telemetry, "epoch 2/4 loss 8.0")
    progress = telemetry.take_progress()
    assert progress is not None
    assert (progress["epoch"], progress["total_epochs"]) == (2, 4)
