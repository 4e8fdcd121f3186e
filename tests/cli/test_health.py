"""`crucible health`, `check` and `compare`, and what `status` and following say of a job's health and cost to come."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import AGAIN, JOB, FakeServer, completed, failed, job_view

pytestmark = pytest.mark.enable_socket

ILL: dict[str, Any] = {
    "verdict": "diverging",
    "level": "bad",
    "message": "loss rises: 0.4 at step 100, now 9.",
    "advice": "Lower the learning rate.",
    "findings": [
        {
            "verdict": "diverging",
            "level": "bad",
            "message": "loss rises: 0.4 at step 100, now 9.",
            "advice": "Lower the learning rate.",
            "series": "loss",
            "step": 100.0,
            "evidence": {"before": 0.4, "now": 9.0},
        },
        {
            "verdict": "near_memory_limit",
            "level": "warning",
            "message": "It uses 950 MiB of 1 GiB memory.",
            "advice": "Use a smaller batch.",
            "series": "system.memory_bytes",
            "step": None,
            "evidence": {"bytes": 996147200.0},
        },
    ],
}


@pytest.mark.parametrize("command", ["health", "check"])
def test_the_verdict_comes_with_evidence_and_advice(cli: Cli, server: FakeServer, command: str) -> None:
    server.jobs[JOB], server.health = job_view(), ILL
    ran = cli(command, "abc123")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "job-abc123: diverging",
        "Bad       loss rises: 0.4 at step 100, now 9.",
        "Evidence  loss, step 100, before=0.4, now=9",
        "Advice    Lower the learning rate.",
        "Warning   It uses 950 MiB of 1 GiB memory.",
        "Evidence  system.memory_bytes, bytes=9.961e+08",
        "Advice    Use a smaller batch.",
    ]


def test_as_json_as_a_word_and_as_an_exit_code(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.health = job_view(), ILL
    found = cli("health", JOB, "--json").json
    assert (found["job"], found["verdict"], len(found["findings"])) == (JOB, "diverging", 2)
    assert cli("health", JOB, "-q").out == "diverging\n"
    assert cli("health", JOB, "--strict").code == 1
    server.health = {"verdict": "healthy", "level": "good", "message": "It runs as it should."}
    assert cli("health", JOB, "--strict").code == 0


def test_no_such_job(cli: Cli, server: FakeServer) -> None:
    assert cli("health", "zzzzzz").code == 3
    assert cli("compare", "zzzzzz", JOB).code == 3


def test_status_says_how_it_does_and_what_is_to_come(cli: Cli, server: FakeServer) -> None:
    cost = {"usd": "0.5", "micros": 500_000, "rate_micros_per_hour": 1_000_000, "estimated_remaining_micros": 250_000}
    server.jobs[JOB] = job_view(health=ILL, cost=cost)
    shown = cli("status", JOB).out
    assert "Health      diverging: loss rises: 0.4 at step 100, now 9.\n            Lower the learning rate." in shown
    assert "Cost        $0.50; about $0.25 to come" in shown
    assert cli("status", JOB, "--json").json["health"]["verdict"] == "diverging"


def test_status_says_why_the_cost_to_come_is_not_known(cli: Cli, server: FakeServer) -> None:
    unknown = {"estimated_remaining_micros": None, "remaining_unknown": "its program tells no total"}
    server.jobs[JOB] = job_view(cost={"micros": 500_000, "rate_micros_per_hour": 1_000_000, **unknown})
    assert "what is to come is not known: its program tells no total" in cli("status", JOB).out


def test_who_follows_a_job_hears_of_trouble_once_and_of_good_health_not(cli: Cli, server: FakeServer) -> None:
    well = {"verdict": "healthy", "level": "good", "message": "It runs as it should."}
    frames = [{"stream": "health", "health": health} for health in (well, ILL, well, ILL)]
    server.jobs[JOB] = failed()
    server.acts = [([*frames, {"stream": "job", "job": completed()}], 1000)]
    ran = cli("resume", JOB)
    assert ran.code == 0
    assert ran.err.count("diverging: loss rises") == 1
    assert "Lower the learning rate." in ran.err
    assert "as it should" not in ran.err


def line(name: str, *values: Any, winner: int | None = None) -> dict[str, Any]:
    return {"name": name, "values": list(values), "differs": len(set(values)) > 1, "winner": winner}


@pytest.fixture
def two(server: FakeServer) -> FakeServer:
    server.jobs[JOB] = completed(name="small", ran_seconds=60.0)
    server.jobs[AGAIN] = completed(id=AGAIN, short="job-def456", name="large", ran_seconds=120.0)
    server.comparison = {
        "config": [line("--lr", "0.1", "0.01"), line("backend", "local", "local")],
        "metrics": {"last": [line("loss", 0.5, 0.25, winner=1)], "best": [line("loss", 0.4, None)]},
    }
    return server


def test_jobs_are_shown_side_by_side(cli: Cli, two: FakeServer) -> None:
    rows = [row.split() for row in cli("compare", "abc123", "def456").out.splitlines()]
    assert rows == [
        ["job-abc123", "job-def456"],
        ["≠", "name", "small", "large"],
        ["status", "completed", "completed"],
        ["health", "healthy", "healthy"],
        ["≠", "ran", "1m", "00s", "2m", "00s"],
        ["cost", "free", "free"],
        ["≠", "--lr", "0.1", "0.01"],
        ["≠", "loss", "(last)", "0.5", "0.25", "*"],
        ["≠", "loss", "(best)", "0.4", "-"],
    ]


def test_with_all_what_is_the_same_is_shown_too(cli: Cli, two: FakeServer) -> None:
    assert "backend" not in cli("compare", JOB, AGAIN).out
    assert "backend" in cli("compare", JOB, AGAIN, "--all").out


def test_compared_as_json(cli: Cli, two: FakeServer) -> None:
    found = cli("compare", JOB, AGAIN, "--json").json
    assert [job["id"] for job in found["jobs"]] == [JOB, AGAIN]
    assert found["config"][0] == line("--lr", "0.1", "0.01")
    assert found["metrics"]["last"][0]["winner"] == 1


def test_one_job_cannot_be_compared(cli: Cli, two: FakeServer) -> None:
    ran = cli("compare", JOB)
    assert ran.code == 2
    assert "cannot be compared" in ran.err
