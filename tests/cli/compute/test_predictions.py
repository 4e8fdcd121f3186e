"""`crucible predictions`, and what a plan says of how good they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.programs import predicted_seconds, train, training
from tests.client.real_server import RealServer

from crucible.core.compute.resources import format_duration

pytestmark = pytest.mark.enable_socket


def test_each_job_is_a_line_with_its_error_and_all_are_judged(cli: Cli, real: RealServer) -> None:
    quick = train(real, training(1, device="cpu"), 1 / 1.1)
    failed = train(real, training(device="cpu"), code=1)
    slow = train(real, training(), 4 / 3, name="train")
    ran = cli("predictions")
    heads, first, second, third = (line.split() for line in ran.out.splitlines())
    assert heads == ["JOB", "NAME", "BACKEND", "PREDICTED", "TOOK", "ERROR"]
    predicted = predicted_seconds(real, slow)
    times = [*format_duration(predicted).split(), *format_duration(predicted * 4 / 3).split()]
    assert first == [slow.short, "train", "local", "T4", *times, "-25%"]
    told = format_duration(predicted_seconds(real, failed)).split()
    assert second == [failed.short, "local", *told, "it", "did", "not", "complete"]
    seconds = predicted_seconds(real, quick)
    assert third == [quick.short, "local", f"{seconds:.1f}s", f"{seconds / 1.1:.1f}s", "+10%"]
    assert ran.err == "Predictions of 2 jobs here: half were within 18%, 50% within 15%.\n"


def test_where_nothing_was_predicted_it_says_how_to_begin(cli: Cli, real: RealServer) -> None:
    ran = cli("predictions")
    assert (ran.code, ran.out) == (0, "")
    assert "crucible run train.py" in ran.err


def test_json_and_names_alone(cli: Cli, real: RealServer) -> None:
    failed, slow = train(real, training(1), code=1), train(real, training(), 4 / 3)
    found = cli("predictions", "--json").json
    assert found["accuracy"] == {"count": 1, "median_error": 0.25, "close": 0.0}
    assert [one["error"] for one in found["items"]] == [0.25, None]
    assert cli("predictions", "-q").out.split() == [slow.short, failed.short]


def test_a_limit_goes_beyond_one_page(cli: Cli, real: RealServer) -> None:
    jobs = [real.submit_program(training(1)).id for _ in range(5)]
    real.page = 2
    shown = cli("predictions", "--limit", "3", "--json").json["items"]
    assert [one["job"] for one in shown] == jobs[:1:-1]
    assert len(cli("predictions", "--limit", "10000", "--json").json["items"]) == 5
    real.page, real.queries[:] = None, []
    assert len(cli("predictions", "--json").json["items"]) == 5
    assert real.queries == ["limit=50"]
    assert cli("predictions", "--limit", "0").code == 2


@pytest.fixture
def learned(real: RealServer, tmp_path: Path) -> RealServer:
    (tmp_path / "main.py").write_text(training())
    for program, ratio in ((training(10), 2.0), *[(training(), 1.09)] * 3):
        train(real, program, ratio)
    return real


def test_a_plan_says_what_corrected_it(cli: Cli, learned: RealServer) -> None:
    said = cli("plan", "main.py").err
    assert "1.9 times as long as the code alone says, after 4 past jobs, 3 of them of this program" in said
    assert "Predictions of 4 jobs here: half were within 8%, 75% within 15%." in said
