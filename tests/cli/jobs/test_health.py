"""`crucible health`, `check` and `compare`, and what `status` and following say of a job's health and cost to come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import TIMING, RealServer, RunningJob
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend

pytestmark = pytest.mark.enable_socket

LEARNS = [2.0 - n / 100 for n in range(100)]
RISES = [9.0, 9.5, 10.0]


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    return (FakeCloud("rehearsal"),)


@pytest.fixture
def healthy_job(real: RealServer) -> RunningJob:
    job = real.start()
    real.run(job.points, loss=LEARNS)
    return job


@pytest.fixture
def failing_job(real: RealServer) -> RunningJob:
    """A job whose loss rises after it fell, at the edge of its memory."""
    job = real.start()
    real.run(job.points, **{"loss": [*LEARNS, *RISES], "system.memory_bytes": [1_046_478_848.0]})
    return job


@pytest.mark.parametrize("command", ["health", "check"])
def test_the_verdict_comes_with_evidence_and_advice(cli: Cli, failing_job: RunningJob, command: str) -> None:
    ran = cli(command, failing_job.short.removeprefix("job-"))
    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"{failing_job.short}: diverging",
        "Bad       loss rises: 1.03 at step 101, now 9.5.",
        "Evidence  loss, step 101, before=1.03, now=9.5, best=1.01",
        "Advice    Lower the learning rate or clip gradients, and resume from a checkpoint before it rose.",
        "Warning   It uses 998 MiB of 1 GiB memory and is killed above that.",
        "Evidence  system.memory_bytes, bytes=1.046e+09, limit_bytes=1 GiB",
        "Advice    Use a smaller batch size or fewer data-loading workers, or give it more memory (--memory, --tier).",
    ]


def test_as_json_as_a_word_and_as_an_exit_code(cli: Cli, healthy_job: RunningJob, failing_job: RunningJob) -> None:
    found = cli("health", failing_job.id, "--json").json
    assert (found["job"], found["verdict"], len(found["findings"])) == (failing_job.id, "diverging", 2)
    assert cli("health", failing_job.id, "-q").out == "diverging\n"
    assert cli("health", failing_job.id, "--strict").code == 1
    assert cli("health", healthy_job.id, "--strict").code == 0


def test_no_such_job(cli: Cli, healthy_job: RunningJob) -> None:
    assert cli("health", "zzzzzz").code == 3
    assert cli("compare", "zzzzzz", healthy_job.id).code == 3


def test_status_says_how_it_does(cli: Cli, failing_job: RunningJob) -> None:
    shown = cli("status", failing_job.id).out
    assert "Health      diverging: loss rises: " in shown
    assert "\n            Lower the learning rate" in shown
    assert cli("status", failing_job.id, "--json").json["health"]["verdict"] == "diverging"


def test_status_says_what_is_to_come(cli: Cli, real: RealServer) -> None:
    job = real.start(backend="rehearsal")
    real.run(job.progress, fraction=0.5, eta_seconds=3600.0)
    shown = cli("status", job.id).out
    assert "; about $0.90 remaining" in shown


def test_status_says_why_the_cost_to_come_is_not_known(cli: Cli, real: RealServer) -> None:
    shown = cli("status", real.start(backend="rehearsal").id).out
    assert "remaining cost unknown: its program reports no total" in shown


def test_who_follows_a_job_hears_of_trouble_once_and_of_good_health_not(cli: Cli, real: RealServer) -> None:
    real.app.api.state.timing = replace(TIMING, health=0.0)

    async def play(job: RunningJob) -> None:
        await job.start()
        await job.points(loss=LEARNS)
        await job.judged("healthy")
        await job.points(loss=RISES)
        await job.judged("diverging")
        await job.end()

    real.play(play)
    ran = cli("run", "-c", "print(1)")
    assert ran.code == 0
    assert ran.err.count("diverging: loss rises") == 1
    assert "Lower the learning rate" in ran.err
    assert "as it should" not in ran.err


@pytest.fixture
def two(real: RealServer) -> tuple[RunningJob, RunningJob]:
    command = ("{python}", "train.py", "--lr")
    small, large = (
        real.complete(seconds=seconds, series={"loss": losses}, spec={"name": name, "command": (*command, rate)})
        for name, rate, seconds, losses in (("small", "0.1", 60.0, [0.4, 0.5]), ("large", "0.01", 120.0, [0.25, 0.25]))
    )
    return small, large


def test_jobs_are_shown_side_by_side(cli: Cli, two: tuple[RunningJob, RunningJob]) -> None:
    ran = cli("compare", *(job.short for job in two))
    assert [row.split() for row in ran.out.splitlines()] == [
        [job.short for job in two],
        ["≠", "name", "small", "large"],
        ["status", "completed", "completed"],
        ["health", "finished", "well", "finished", "well"],
        ["≠", "ran", "1m", "00s", "2m", "00s"],
        ["cost", "free", "free"],
        ["≠", "--lr", "0.1", "0.01"],
        ["≠", "loss", "(last)", "0.5", "0.25", "*"],
        ["≠", "loss", "(best)", "0.4", "0.25", "*"],
    ]
    assert ran.err == "≠ differs · * best · --all also shows equal rows\n"


def test_a_value_that_a_job_does_not_have_is_a_dash(cli: Cli, real: RealServer, healthy_job: RunningJob) -> None:
    other = real.complete(series={"accuracy": [0.5, 0.75]})
    rows = [row.split() for row in cli("compare", healthy_job.short, other.short).out.splitlines()]
    for row in (
        ["≠", "loss", "(last)", "1.01", "-"],
        ["≠", "loss", "(best)", "1.01", "-"],
        ["≠", "accuracy", "(best)", "-", "0.75"],
    ):
        assert row in rows, rows


def test_with_all_what_is_the_same_is_shown_too(cli: Cli, two: tuple[RunningJob, RunningJob]) -> None:
    jobs = [job.id for job in two]
    assert "backend" not in cli("compare", *jobs).out
    assert "backend" in cli("compare", *jobs, "--all").out


def test_compared_as_json(cli: Cli, two: tuple[RunningJob, RunningJob]) -> None:
    found = cli("compare", *(job.id for job in two), "--json").json
    assert [job["id"] for job in found["jobs"]] == [job.id for job in two]
    rate = next(line for line in found["config"] if line["name"] == "--lr")
    assert (rate["values"], rate["differs"]) == (["0.1", "0.01"], True)
    assert found["metrics"]["last"][0]["winner"] == 1


def test_one_job_cannot_be_compared(cli: Cli, healthy_job: RunningJob) -> None:
    ran = cli("compare", healthy_job.id)
    assert ran.code == 2
    assert "cannot be compared" in ran.err
