"""`report` in a job and off the platform."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crucible.agent.output.parsing import OutputParser
from crucible.inside import report
from crucible.inside.reporting import dropped_lines


class Tensor:
    """Has one element, as tensors of every framework do."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        if len(self.values) != 1:
            raise RuntimeError(f"a Tensor with {len(self.values)} elements cannot be converted to Scalar")
        return self.values[0]


def written(job: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (job / "report.jsonl").read_text().splitlines()]


def test_on_platform_one_json_line_a_call(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(5, loss=0.5, accuracy=1)
    report(loss=0.25)
    assert written(job) == [
        {"crucible": 1, "step": 5, "metrics": {"loss": 0.5, "accuracy": 1.0}},
        {"crucible": 1, "metrics": {"loss": 0.25}},
    ]
    assert capsys.readouterr().out == ""


def test_off_platform_it_prints_what_the_parser_reads(off_platform: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(5, loss=0.12)
    out = capsys.readouterr().out
    assert out == "step 5 loss=0.12\n"
    (seen,) = OutputParser().feed(out.rstrip())
    assert (seen.step, seen.metrics) == (5, (("loss", 0.12),))
    assert list(off_platform.iterdir()) == []


def test_without_a_report_file_a_job_prints_too(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CRUCIBLE_REPORT_FILE")
    report(step=1, loss=2)
    assert capsys.readouterr().out == "step 1 loss=2\n"


def test_the_parser_reads_every_line_of_the_file_whatever_the_names(job: Path) -> None:
    report(7, anything=1.5, total_steps=70)
    (seen,) = OutputParser().feed((job / "report.jsonl").read_text().rstrip())
    assert (seen.step, seen.total_steps, seen.metrics) == (7, 70, (("anything", 1.5),))


def test_tensors_and_numbers_that_are_not_finite(job: Path) -> None:
    report(Tensor(3), loss=Tensor(0.5), bad=math.nan, worse=math.inf, flag=True)  # type: ignore[arg-type]
    (line,) = written(job)
    metrics = line["metrics"]
    assert isinstance(metrics, dict)
    assert (line["step"], metrics["loss"], metrics["worse"], metrics["flag"]) == (3, 0.5, math.inf, 1.0)
    assert math.isnan(metrics["bad"])


@pytest.mark.parametrize("bad", ["0.5", b"1", None, [1.0], Tensor(1, 2), object(), 1j, 10**400])
def test_a_bad_value_is_refused_by_name_and_nothing_is_written(job: Path, bad: object) -> None:
    with pytest.raises(TypeError, match="accuracy"):
        report(1, loss=0.5, accuracy=bad)  # type: ignore[arg-type]
    assert not (job / "report.jsonl").exists()


@pytest.mark.parametrize("bad", ["five", math.nan, math.inf])
def test_a_bad_step_is_refused(job: Path, bad: object) -> None:
    with pytest.raises(TypeError, match="step"):
        report(bad, loss=0.5)  # type: ignore[arg-type]


def test_nothing_to_say_writes_nothing(job: Path) -> None:
    report()
    assert not (job / "report.jsonl").exists()


def test_many_metrics_become_several_lines_below_the_limit(job: Path) -> None:
    report(1, **{f"metric_number_{i}": i / 7 for i in range(500)})
    lines = (job / "report.jsonl").read_bytes().splitlines(keepends=True)
    assert max(map(len, lines)) < 4096
    merged: dict[str, float] = {}
    for line in written(job):
        assert line["step"] == 1
        assert isinstance(line["metrics"], dict)
        merged.update(line["metrics"])
    assert merged == {f"metric_number_{i}": i / 7 for i in range(500)}


def test_disk_trouble_is_counted_not_raised(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dropped_lines()
    monkeypatch.setenv("CRUCIBLE_REPORT_FILE", str(tmp_path / "missing" / "report.jsonl"))
    report(1, loss=0.5)
    monkeypatch.setenv("CRUCIBLE_REPORT_FILE", "/dev/full")
    report(2, loss=0.5)
    assert dropped_lines() == before + 2
    monkeypatch.setenv("CRUCIBLE_REPORT_FILE", str(tmp_path / "fine.jsonl"))
    report(3, loss=0.5)
    assert json.loads((tmp_path / "fine.jsonl").read_text())["step"] == 3


def test_a_pipe_that_nobody_reads_does_not_block(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dropped_lines()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("CRUCIBLE_REPORT_FILE", str(tmp_path / "pipe"))
    report(1, loss=0.5)
    assert dropped_lines() == before + 1


def test_lines_of_several_processes_stay_whole(job: Path) -> None:
    code = "import sys; from crucible.inside import report\nfor i in range(500): report(i, **{sys.argv[1]: i})"
    workers = [subprocess.Popen([sys.executable, "-c", code, f"worker{n}"]) for n in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert len(written(job)) == 1500


def test_public_names() -> None:
    from crucible import inside

    assert set(inside.__all__) == {
        "BaseModel", "ModelMetadata", "Option", "registry",
        "checkpoint", "data_dir", "on_stop", "output_dir", "report", "result", "resume_from", "should_checkpoint",
        "should_stop",
    }  # fmt: skip
    assert all(callable(getattr(inside, name)) for name in set(inside.__all__) - {"checkpoint", "registry"})
