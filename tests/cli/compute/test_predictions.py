"""`crucible predictions`, and what a plan says of how good they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import FakeServer, plan_view, planned_offer

pytestmark = pytest.mark.enable_socket


def prediction(n: int, **changes: Any) -> dict[str, Any]:
    given = {
        "job": f"job-{n}",
        "short": f"job-{n:06}",
        "name": "train",
        "backend": "local",
        "gpu": "T4",
        "predicted_seconds": 90.0,
        "took_seconds": 120.0,
        "error": 0.25,
        "why_not": None,
    }
    return {**given, **changes}


FAILED = prediction(2, name=None, gpu=None, took_seconds=None, error=None, why_not="it did not complete")
SHORT = prediction(3, predicted_seconds=2.5, took_seconds=2.0)


def test_each_job_is_a_line_with_its_error_and_all_are_judged(cli: Cli, server: FakeServer) -> None:
    server.predictions = [prediction(1), FAILED, SHORT]
    ran = cli("predictions")
    heads, first, second, third = (line.split() for line in ran.out.splitlines())
    assert heads == ["JOB", "NAME", "PLACE", "PREDICTED", "TOOK", "ERROR"]
    assert first == ["job-000001", "train", "local", "T4", "1m", "30s", "2m", "00s", "-25%"]
    assert second == ["job-000002", "local", "1m", "30s", "it", "did", "not", "complete"]
    assert third[-3:] == ["2.5s", "2.0s", "+25%"]
    assert ran.err == "Predictions of 2 jobs here: half were within 25%, 50% within 15%.\n"


def test_where_nothing_was_predicted_it_says_how_to_begin(cli: Cli, server: FakeServer) -> None:
    ran = cli("predictions")
    assert (ran.code, ran.out) == (0, "")
    assert "crucible run train.py" in ran.err


def test_json_and_names_alone(cli: Cli, server: FakeServer) -> None:
    server.predictions = [prediction(1), FAILED]
    found = cli("predictions", "--json").json
    assert found["accuracy"] == {"count": 1, "median_error": 0.25, "close": 0.5}
    assert [one["error"] for one in found["items"]] == [0.25, None]
    assert cli("predictions", "-q").out.split() == ["job-000001", "job-000002"]


def test_a_limit_goes_beyond_one_page(cli: Cli, server: FakeServer) -> None:
    server.predictions = [prediction(n) for n in range(1100)]
    shown = cli("predictions", "--limit", "1003", "--json").json["items"]
    assert [one["job"] for one in shown] == [f"job-{n}" for n in range(1003)]
    assert len(cli("predictions", "--json").json["items"]) == 50
    assert cli("predictions", "--limit", "0").code == 2


@pytest.fixture
def learned(server: FakeServer, tmp_path: Path) -> FakeServer:
    (tmp_path / "train.py").write_text("import torch\n")
    here = planned_offer("local")
    more = {
        "hours": 1.0,
        "learned": {"jobs": 7, "same_program": 3, "factor": 1.84},
        "accuracy": {"count": 7, "median_error": 0.081, "close": 0.75},
    }
    server.plan = plan_view(profile={"frameworks": ["torch"]}, chosen=here, **more)
    return server


def test_a_plan_says_what_corrected_it(cli: Cli, learned: FakeServer) -> None:
    said = cli("plan", "train.py").err
    assert "1.8 times as long as the code alone says, after 7 past jobs, 3 of them of this program" in said
    assert "Predictions of 7 jobs here: half were within 8%, 75% within 15%." in said
