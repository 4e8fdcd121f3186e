"""Test the buffer of points from a program's output and its own reports."""

from __future__ import annotations

import json
from pathlib import Path

from crucible.agent.output.parsing import OutputParser
from crucible.agent.output.points import HELD_SECONDS, MAX_PENDING, MAX_SERIES, MESSAGE_POINTS, PointBuffer, Points
from crucible.agent.output.telemetry import ReportFile, Telemetry


class Job:
    """A program that prints and reports, and the points that would be sent."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.telemetry = Telemetry(lambda: self.now, lambda: 1000.0)
        self._report = folder / "report.jsonl"
        self._reader = ReportFile(self._report, self.telemetry)
        self._parser = OutputParser()

    def prints(self, line: str) -> None:
        for seen in self._parser.feed(line):
            self.telemetry.add_printed(seen)

    def reports(self, **fields: object) -> None:
        with self._report.open("a") as file:
            file.write(json.dumps({"crucible": 1, **fields}) + "\n")

    def sent(self, last: bool = False) -> Points:
        self._reader.read()
        return self.telemetry.take_points(last) or {}


def values(points: Points, name: str = "loss") -> list[tuple[object, object]]:
    return [(step, value) for step, value, _ in points.get(name, [])]


def test_a_value_that_is_printed_and_reported_is_one_point(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for step in range(3):
        job.prints(f"step {step} loss: {1 / (step + 1):.3f}")
        job.reports(step=step, metrics={"loss": 1 / (step + 1)})
    assert values(job.sent()) == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    job.now += HELD_SECONDS
    assert job.sent(last=True) == {}


def test_it_is_one_point_too_when_the_print_is_read_long_before_the_report(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.prints("step 1 loss: 0.5")
    assert job.sent() == {}
    job.now += HELD_SECONDS / 2
    job.reports(step=1, metrics={"loss": 0.5})
    assert values(job.sent()) == [(1, 0.5)]
    job.prints("step 2 loss: 0.25")
    job.now += HELD_SECONDS
    assert job.sent(last=True) == {}


def test_each_name_has_its_own_source(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.prints("step 1 loss=0.5 accuracy=0.9")
    job.reports(step=1, metrics={"loss": 0.5})
    sent = job.sent(last=True)
    assert values(sent) == [(1, 0.5)]
    assert values(sent, "accuracy") == [(1, 0.9)]


def test_what_is_only_printed_is_sent_after_a_moment_and_from_then_on_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.prints("step 1 loss=0.5")
    assert job.sent() == {}
    job.now += HELD_SECONDS
    assert values(job.sent()) == [(1, 0.5)]
    job.prints("step 2 loss=0.25")
    assert values(job.sent()) == [(2, 0.25)]


def test_the_end_of_a_short_program_keeps_nothing_back(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.prints("step 1 loss=0.5")
    assert values(job.sent(last=True)) == [(1, 0.5)]


def test_a_report_that_comes_late_counts_from_then_on(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.prints("loss=0.5")
    job.now += HELD_SECONDS
    assert values(job.sent()) == [(0, 0.5)]
    job.prints("loss=0.4")
    job.reports(metrics={"loss": 0.3})
    assert values(job.sent()) == [(1, 0.3)], "the one that was sent stays; the one that was not makes room"


def test_a_sample_of_the_machine_is_sent_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.telemetry.add_sample({"cpu": 0.5})
    assert values(job.sent(), "cpu") == [(0, 0.5)]


def test_one_message_carries_so_many_and_the_rest_comes_next() -> None:
    buffer = PointBuffer()
    for step in range(MESSAGE_POINTS + 5):
        buffer.add_reported("loss", step, 0.5, 0.0)
    assert len((buffer.take(0.0) or {})["loss"]) == MESSAGE_POINTS
    assert values(buffer.take(0.0) or {}) == [(MESSAGE_POINTS + i, 0.5) for i in range(5)]
    assert buffer.take(0.0) is None


def test_too_many_points_are_thinned_and_too_many_names_left_out() -> None:
    buffer = PointBuffer()
    for step in range(MAX_PENDING + 1):
        buffer.add_printed("loss", step, 0.5, 0.0, 0.0)
    kept = 0
    while (points := buffer.take(0.0, last=True)) is not None:
        kept += len(points["loss"])
    assert kept == MAX_PENDING // 2 + 1
    for n in range(MAX_SERIES + 10):
        buffer.add_reported(f"m{n}", 0, 0.5, 0.0)
    names = 0
    while (points := buffer.take(0.0)) is not None:
        names += len(points)
    assert names == MAX_SERIES - 1, "one of them is the loss"


def test_numbers_that_json_has_no_word_for() -> None:
    buffer = PointBuffer()
    for step, value in enumerate((float("nan"), float("inf"), float("-inf"))):
        buffer.add_reported("loss", step, value, 0.0)
    assert values(buffer.take(0.0) or {}) == [(0, None), (1, "inf"), (2, "-inf")]
