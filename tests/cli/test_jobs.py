"""What `status`, `jobs` and `logs` say about jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view, planned_offer

from crucible.cli.filters import moment

pytestmark = pytest.mark.enable_socket

PLACE = "local (this computer, 2 CPUs): nothing else was asked for"


def queued(**changes: Any) -> dict[str, Any]:
    view = job_view(status="queued", phase="queued", placement=PLACE, started_at=None, attempt=0, attempts=[])
    return {**view, "waiting": "behind 2 other jobs in the queue", **changes}


def test_what_runs_is_shown(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(
        command=["{python}", "train.py", "--epochs", "3"],
        source={"kind": "script", "path": "/home/me/train.py"},
        environment={"interpreter": "/opt/venv/bin/python", "origin": "the shell's VIRTUAL_ENV"},
        tags=["a", "b"],
        priority=5,
    )
    row = cli("jobs").out.splitlines()[1]
    assert "train.py" in row.split()
    assert "python train.py --epochs 3" in row
    assert "/opt/venv/bin/python" in row
    shown = cli("status", JOB).out
    assert "Command     python train.py --epochs 3" in shown
    assert "Python      /opt/venv/bin/python (the shell's VIRTUAL_ENV)" in shown
    assert "Tags        a, b" in shown
    assert "Priority    5" in shown


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"kind": "git", "url": "https://host/team/project.git"}, "project"),
        ({"kind": "directory", "path": "/home/me/model"}, "model"),
        ({"kind": "notebook", "path": "/home/me/look.ipynb"}, "look.ipynb"),
        ({"kind": "code"}, "(code)"),
    ],
)
def test_a_job_without_a_name_goes_by_what_it_was_made_from(
    cli: Cli, server: FakeServer, source: dict[str, str], name: str
) -> None:
    server.jobs[JOB] = job_view(source=source)
    assert cli("jobs").out.splitlines()[1].split()[1] == name
    server.jobs[JOB] = job_view(source=source, name="mine")
    assert cli("jobs").out.splitlines()[1].split()[1] == "mine"


def test_a_shell_command_is_shown_as_it_was_written(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(command=["/bin/sh", "-c", "make   train\n | tee log", "sh", "a b"])
    assert "make train | tee log 'a b'" in cli("jobs").out


def test_why_jobs_wait_is_shown(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = queued()
    assert "waiting: behind 2 other jobs in the queue" in cli("status").out
    shown = cli("status", JOB).out
    assert f"Will run on  {PLACE}" in shown
    assert "Running on" not in shown
    assert "Waiting      behind 2 other jobs" in shown


def test_a_job_that_never_ran_ran_nowhere(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = queued(status="cancelled", phase="cancelled", ended_at="2026-11-15T10:00:43.000Z")
    shown = cli("status", JOB).out
    assert "Ran on" not in shown
    assert "Waiting" not in shown


def test_how_long_it_ran_is_the_servers_word(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = completed(ran_seconds=7.3)
    assert "Ran        7s" in cli("status", JOB).out


def test_reasons_of_several_lines_stay_aligned(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = failed()
    assert "Why        The code failed.\n           Look at the last output.\n" in cli("status", JOB).out


def test_a_job_goes_by_its_name_the_newest_one_of_it(cli: Cli, server: FakeServer) -> None:
    server.page = 1
    server.jobs = {
        "ccc": job_view(id="ccc", short="job-c", name="other"),
        "bbb": job_view(id="bbb", short="job-b", name="mine"),
        "aaa": completed(id="aaa", short="job-a", name="mine"),
    }
    assert cli("status", "mine", "-q").out == "bbb\n"
    assert cli("events", "mine").code == 0
    assert cli("logs", "mine").code == 0
    assert cli("metrics", "mine").code == 0
    assert "job-b cancelled" in cli("cancel", "mine").err
    assert cli("status", "nobody").code == 3


def test_jobs_are_filtered_by_name_and_tag(cli: Cli, server: FakeServer) -> None:
    server.page = 1
    server.jobs = {
        "ccc": job_view(id="ccc", short="job-c", name="x", tags=["red", "big"]),
        "bbb": failed(id="bbb", short="job-b", name="y", tags=["red"]),
        "aaa": job_view(id="aaa", short="job-a", name="x"),
    }
    assert cli("jobs", "--name", "x", "-q").out == "ccc\naaa\n"
    assert cli("jobs", "--name", "x", "-n", "1", "-q").out == "ccc\n"
    assert cli("jobs", "--all", "-q").out == "ccc\nbbb\naaa\n"
    assert cli("jobs", "--backend", "ssh", "-q").out == ""
    assert cli("jobs", "--tag", "red", "-q").out == "ccc\nbbb\n"
    assert cli("jobs", "--tag", "red", "--tag", "big", "-q").out == "ccc\n"
    assert cli("jobs", "--tag", "red", "--status", "failed", "-q").out == "bbb\n"
    assert "no such job" in cli("jobs", "--tag", "blue").err


def test_logs_of_a_job_that_waits_say_so(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = queued()
    ran = cli("logs", JOB)
    assert (ran.code, ran.out) == (0, "")
    assert "job-abc123 has not started. Waiting: behind 2 other jobs in the queue" in ran.err
    assert cli("logs", JOB, "--json").err == ""


def test_followed_logs_say_why_a_job_waits_and_how_it_ended(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = queued()
    log = {"stream": "log", "attempt": 1, "cursor": 4, "text": "one\n"}
    server.acts = [([{"stream": "job", "job": queued()}, log, {"stream": "job", "job": completed()}], 1000)]
    ran = cli("logs", "-f", JOB)
    assert ran.out == "one\n"
    assert f"Will run on {PLACE}; waiting: behind 2 other jobs in the queue" in ran.err
    assert ran.err.count("Will run on") == 1
    assert "job-abc123 completed after 42s" in ran.err


def test_crucibles_own_lines_in_a_log_go_to_standard_error(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.log = completed(), b"[crucible] building\none\n[crucible] built\ntwo"
    ran = cli("logs", JOB)
    assert ran.out == "one\ntwo"
    assert ran.err == "[crucible] building\n[crucible] built\n"
    quiet = cli("logs", JOB, "--quiet")
    assert (quiet.out, quiet.err) == ("one\ntwo", "")
    assert cli("logs", JOB, "--grep", "buil", "-q").out == ""


def test_a_result_is_shown(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = completed(result={"kind": "inference", "value": {"label": "café"}, "attempt": 1})
    assert 'Result     {"label": "café"}' in cli("status", JOB).out
    assert cli("status", JOB, "--json").json["result"]["value"] == {"label": "café"}


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        (
            {"chosen": planned_offer("local", seconds=90.0, total_micros=0)},
            "Planned    about 1m 30s on this computer at local, free",
        ),
        ({"chosen": planned_offer("cloud", seconds=90.0, total_micros=20_000)}, "at cloud, $0.02 in all"),
        ({"chosen": planned_offer("cloud", seconds=None, total_micros=None)}, "Planned    on this computer at cloud\n"),
        ({"chosen": None, "why": "Nothing has room for it just now."}, "Nothing has room for it just now."),
    ],
)
def test_what_its_plan_said_is_shown(cli: Cli, server: FakeServer, plan: dict[str, Any], shown: str) -> None:
    server.jobs[JOB] = completed(plan=plan)
    assert shown in cli("status", JOB).out
    server.jobs[JOB] = completed(plan=None)
    assert "Planned" not in cli("status", JOB).out


def test_jobs_are_asked_for_in_the_servers_words(cli: Cli, server: FakeServer) -> None:
    options = ("--status", "queued,running", "--backend", "local", "--kind", "train", "--text", "a b", "--active")
    assert cli("jobs", *options, "--project", "p", "--since", "2026-11-15T10:00:00Z", "--limit", "7").code == 0
    [query] = server.queries
    said = parse_qs(query)
    assert said["status"] == ["queued", "running"]
    assert said["created_after"] == ["2026-11-15T10:00:00Z"]
    assert (said["text"], said["active"], said["limit"]) == (["a b"], ["true"], ["7"])


@pytest.mark.parametrize(
    "options",
    [
        ("--status", "runing"),
        ("--kind", "training"),
        ("--tag", "=x"),
        ("--since", "yesterday"),
        ("--until", "-3h"),
        ("--name", ""),
        ("--name", "n" * 201),
        ("--backend", "b" * 101),
        ("--limit", "0"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_before_the_server_is_asked(
    cli: Cli, server: FakeServer, options: tuple[str, ...]
) -> None:
    assert cli("jobs", *options).code == 2
    if options[0] != "--limit":
        assert cli("cancel", "--yes", "--active", *options).code == 2
    assert server.requests == []


def test_a_time_is_so_long_ago_or_a_date() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert moment("--since", "2h", now) == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert moment("--since", "2026-11-14T10:00:00+00:00", now) == datetime(2026, 11, 14, 10, tzinfo=UTC)
    assert moment("--since", "2026-11-14", now).tzinfo is not None


def test_lines_are_found_by_the_server_page_by_page(cli: Cli, server: FakeServer) -> None:
    server.page = 2
    server.jobs[JOB], server.log = completed(), b"one\nLoss nan\nloss nan\nfour\nloss nan too"
    assert cli("logs", JOB, "--grep", "loss nan").out == "loss nan\nloss nan too\n"
    assert cli("logs", JOB, "--grep", "loss nan", "-i").out == "Loss nan\nloss nan\nloss nan too\n"
    assert cli("logs", JOB, "--grep", "four", "-C", "1").out == "loss nan\nfour\nloss nan too\n"
    found = cli("logs", JOB, "--grep", "loss nan", "--json").lines
    assert [(hit["line"], hit["offset"]) for hit in found] == [(3, 13), (5, 27)]
    nothing = cli("logs", JOB, "--grep", "absent")
    assert (nothing.code, nothing.out) == (0, "")
    assert "No line" in nothing.err


def test_jobs_are_cancelled_by_options_after_a_question(cli: Cli, server: FakeServer) -> None:
    server.jobs = {
        "aaa": job_view(id="aaa", short="job-a", tags=["old"]),
        "bbb": job_view(id="bbb", short="job-b", tags=["old"]),
        "ccc": job_view(id="ccc", short="job-c"),
        "ddd": completed(id="ddd", short="job-d", tags=["old"]),
    }
    refused = cli("cancel", "--tag", "old")
    assert refused.code == 2
    assert "Cancel 2 jobs: job-a, job-b?" in refused.err
    assert server.jobs["aaa"]["status"] == "running"
    done = cli("cancel", "--tag", "old", "--yes")
    assert done.code == 0
    assert "job-a cancelled." in done.err
    assert [server.jobs[name]["status"] for name in ("aaa", "bbb", "ccc", "ddd")] == [
        "cancelled",
        "cancelled",
        "running",
        "completed",
    ]
    assert server.bodies[-1][1]["ids"] == ["aaa", "bbb"]
    none = cli("cancel", "--tag", "old", "--yes")
    assert (none.code, "no such job" in none.err) == (0, True)


def test_one_job_that_was_not_named_is_asked_about_too(cli: Cli, server: FakeServer) -> None:
    server.jobs, server.more = {JOB: job_view(tags=["old"])}, True
    ran = cli("cancel", "--tag", "old")
    assert (ran.code, "Cancel 1 job: job-abc123?" in ran.err) == (2, True)
    assert "more than 1" in ran.err


def test_cancel_needs_to_know_which(cli: Cli, server: FakeServer) -> None:
    assert cli("cancel").code == 2
    assert cli("cancel", JOB, "--tag", "old").code == 2
    assert cli("cancel", "--yes").code == 2
    assert server.bodies == []
