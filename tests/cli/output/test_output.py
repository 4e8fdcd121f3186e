from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest

from crucible.cli.output.format import (
    format_age,
    format_cost,
    format_metric,
    format_placement,
    format_progress,
    run_seconds,
)
from crucible.cli.output.output import Output, fit_widths, print_error, sparkline
from crucible.core.errors import BadInput
from crucible.core.views.jobs import CostView, JobView, ProgressView


def job(**fields: Any) -> JobView:
    return JobView(id="job-1", **{"status": "running", "phase": "running", **fields})


@pytest.mark.parametrize(
    ("values", "shown"),
    [([], ""), ([1], "▄"), ([2, 2, 2], "▄▄▄"), ([0, 1], "▁█"), ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█")],
)
def test_sparklines(values: list[float], shown: str) -> None:
    assert sparkline(values) == shown


def test_long_series_are_averaged_down() -> None:
    shown = sparkline([float(i) for i in range(1000)], width=10)
    assert len(shown) == 10
    assert (shown[0], shown[-1]) == ("▁", "█")


def test_an_error_in_three_lines() -> None:
    out = io.StringIO()
    print_error(BadInput("What.", why="Why.", fix="Do."), as_json=False, file=out)
    assert out.getvalue() == "Error: What.\n  Why.\n  Fix: Do.\n"


def test_columns_line_up_and_control_characters_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("A", "LONGER"), [("xxx", "y\x1b[2J"), ("z", "")])
    assert capsys.readouterr().out == "A    LONGER\nxxx  y\\x1b[2J\nz\n"


def test_an_error_of_several_lines_keeps_its_indentation() -> None:
    out = io.StringIO()
    print_error(BadInput("What.", why="git said:\n  fatal: no\nover"), as_json=False, file=out)
    assert out.getvalue() == "Error: What.\n  git said:\n    fatal: no\n  over\n"


def test_narrow_terminals_get_narrow_columns() -> None:
    assert fit_widths([10, 20, 30], 100) == [10, 20, 30]
    assert fit_widths([10, 20, 30], 54) == [10, 20, 20]
    assert fit_widths([10, 20, 30], 40) == [10, 13, 13]
    assert fit_widths([10, 20, 30], 5) == [10, 6, 6]
    assert fit_widths([50], 10) == [50]


def test_amounts_in_words() -> None:
    assert format_metric("gpu_memory_bytes", 9227468.8) == "8.8 MiB"
    assert format_metric("loss", 0.123456) == "0.1235"
    assert format_metric("loss", None) == ""


def test_quiet_and_json_leave_out_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    Output(quiet=True).warn("a")
    Output(as_json=True).say("b")
    Output(as_json=True).warn("c")
    Output().say("d")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "c\nd\n")


def test_progress_in_words() -> None:
    assert format_progress(None) == ""
    found = ProgressView(epoch=2, total_epochs=5, step=40, loss=0.12345, fraction=0.4, eta_seconds=130)
    assert format_progress(found) == "epoch 2/5, step 40, loss 0.1235, 40%, 2m 10s left"
    assert format_progress(ProgressView(message="loading")) == "loading"


def test_cost_in_words() -> None:
    assert format_cost(CostView()) == "free"
    assert format_cost(CostView(micros=1_234_567)) == "$1.23"
    assert format_cost(CostView(micros=4_200)) == "$0.0042"
    assert format_cost(CostView(rate_micros_per_hour=20_000)) == "$0.0000"


def test_times() -> None:
    now = datetime(2026, 11, 15, 10, 1, tzinfo=UTC)
    found = job(created_at="2026-11-15T10:00:00.000Z", started_at="2026-11-15T10:00:30Z")
    assert run_seconds(found, now) == 30
    assert format_age(found, now) == "1m 00s ago"
    assert run_seconds(job(started_at="2026-11-15T10:00:30Z", ran_seconds=4.5), now) == 4.5
    assert run_seconds(job()) is None
    assert run_seconds(job(started_at="nonsense")) is None


def test_places() -> None:
    assert format_placement(job()) is None
    assert format_placement(job(backend="local", placement="local (here): why")) == "local (here): why"
    assert format_placement(job(backend="aws", placement="cheapest")) == "aws: cheapest"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"status": "completed", "exit_code": 0}, 0),
        ({"status": "failed", "exit_code": 3}, 3),
        ({"status": "failed", "exit_code": None, "signal": 15}, 143),
        ({"status": "failed"}, 1),
        ({"status": "cancelled", "exit_code": 0}, 1),
    ],
)
def test_the_code_that_following_returns(fields: dict[str, Any], code: int) -> None:
    assert job(**fields).result_code == code
