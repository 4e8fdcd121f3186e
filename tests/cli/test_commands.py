"""All commands but run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

pytestmark = pytest.mark.enable_socket


def test_status_lists_active_jobs(cli: Cli, server: FakeServer) -> None:
    assert "No job is active" in cli("status").err
    progress = {"epoch": 1, "total_epochs": 4, "loss": 0.5}
    server.jobs = {JOB: job_view(name="first", progress=progress), "b": completed(id="b", short="job-b")}
    ran = cli("status")
    assert "job-abc123" in ran.out
    assert "epoch 1/4, loss 0.5" in ran.out
    assert "job-b" not in ran.out


def test_status_of_one(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = failed()
    ran = cli("status", "abc123")
    assert "failed" in ran.out
    assert "The code failed.\n" in ran.out
    assert "Look at the last output." in ran.out
    assert "last line" in ran.out
    found = cli("status", "abc123", "--json").json
    assert {"id", "status", "phase", "backend", "progress", "cost"} <= set(found)


def test_jobs_are_filtered_and_limited(cli: Cli, server: FakeServer) -> None:
    server.jobs = {"a": job_view(id="a", short="job-a"), "b": failed(id="b", short="job-b")}
    assert [job["id"] for job in cli("jobs", "--json").json["items"]] == ["a", "b"]
    assert cli("jobs", "--status", "failed", "-q").out == "b\n"
    assert cli("jobs", "--limit", "1", "-q").out == "a\n"
    assert "Did you mean 'failed'" in cli("jobs", "--status", "faild").err


def test_tables_are_plain_text(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(name="evil\x1b[2J")
    out = cli("jobs").out
    assert "\x1b" not in out
    assert out.splitlines()[0].startswith("JOB")


def test_events_are_listed(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    server.events = [{"n": 1, "type": "submitted", "at": "2026-11-15T10:00:00Z", "data": {"a": 1}}]
    assert cli("events", JOB).out == '   1  2026-11-15T10:00:00Z  submitted  {"a": 1}\n'
    assert cli("events", JOB, "--json").json["type"] == "submitted"


def test_logs_print_what_there_is(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.log = job_view(), "one\nzwölf\nthree".encode()
    assert cli("logs", "last").out == "one\nzwölf\nthree"
    assert cli("logs", "last", "--grep", "zw").out == "zwölf\n"
    assert cli("logs", "last", "--grep", "^z", "--regex").out == "zwölf\n"
    assert cli("logs", "last", "--since", "10m", "--grep", "^z", "--regex").out == "zwölf\n"
    assert cli("logs", "last", "--json").lines[2] == {"attempt": 1, "line": "three"}
    assert cli("logs", "last", "--since", "10m").code == 0
    assert cli("logs", "last", "--grep", "(", "--regex").code == 2
    assert cli("logs", "last", "--grep", "(", "--regex", "--since", "10m").code == 2


def test_logs_follow_to_the_end_and_return_the_jobs_code(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.log, server.ends_as = job_view(), b"one\ntwo\n", failed(code=7)
    server.acts = [
        (
            [
                {"stream": "log", "attempt": 1, "cursor": 8, "text": "two\n"},
                {"stream": "log", "attempt": 1, "cursor": 14, "text": "three\n"},
                {"stream": "job", "job": failed(code=7)},
            ],
            1000,
        )
    ]
    ran = cli("logs", "-f", JOB)
    assert ran.code == 7
    assert ran.out == "one\ntwo\nthree\n"
    assert server.streams[0]["offset"] == "8"


def test_metrics_as_sparklines(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    assert "no metrics yet" in cli("metrics", JOB).err
    points = [[i, float(8 - i), 1.0] for i in range(8)]
    server.series = {"loss": {"count": 8, "last": 1.0, "min": 1.0, "max": 8.0, "points": points}}
    server.series["memory_bytes"] = {"count": 1, "last": 9227468.8, "min": 0, "max": 2**30, "points": [[0, 1, 1]]}
    assert "8.8 MiB" in cli("metrics", JOB).out
    assert "1 GiB" in cli("metrics", JOB).out
    assert "█▇▆▅▄▃▂▁" in cli("metrics", JOB).out
    assert cli("metrics", JOB, "--json").json["series"]["loss"]["max"] == 8.0
    assert cli("metrics", JOB, "--series", "nosuch").code == 3


def test_one_job_is_cancelled_without_asking_several_are_not(cli: Cli, server: FakeServer) -> None:
    server.jobs = {"aaa": job_view(id="aaa", short="job-a"), "bbb": job_view(id="bbb", short="job-b")}
    ran = cli("cancel", "aaa")
    assert ran.code == 0
    assert "job-a cancelled." in ran.err
    assert server.jobs["aaa"]["status"] == "cancelled"
    ran = cli("cancel", "aaa", "bbb")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert server.jobs["bbb"]["desired"] == "run"
    ran = cli("cancel", "aaa", "bbb", "--yes")
    assert ran.code == 0
    assert "job-a had already ended: cancelled." in ran.err
    assert "job-b cancelled." in ran.err
    assert cli("cancel", "bbb", "--json").json["status"] == "cancelled"


def test_cancel_need_not_wait(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.stubborn = job_view(), True
    ran = cli("cancel", JOB, "--no-wait")
    assert (ran.code, "job-abc123 is being cancelled." in ran.err) == (0, True)


def test_a_job_that_does_not_end_in_time_is_exit_code_8(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB], server.stubborn = job_view(), True
    ran = cli("cancel", JOB, "--wait", "0s", "--json")
    assert ran.code == 8
    (line,) = ran.err.splitlines()
    assert "has not ended yet" in json.loads(line)["error"]["what"]


def test_cancelling_is_all_or_nothing_about_names(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    assert cli("cancel", JOB, "nosuch", "--yes").code == 3
    assert server.jobs[JOB]["desired"] == "run"


def test_download_writes_below_the_jobs_name_or_where_told(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    server.jobs[JOB], server.artifacts = completed(), {"a/b.txt": b"hello", "c.txt": b"x"}
    ran = cli("download", JOB)
    assert (tmp_path / "job-abc123" / "a" / "b.txt").read_text() == "hello"
    assert "2 files" in ran.err
    assert "already there" not in ran.err
    assert "; all already there" in cli("download", JOB).err
    found = cli("download", JOB, "c.txt", "--to", "here", "--json").json
    assert found["file"] == str(tmp_path / "here" / "c.txt")
    assert not (tmp_path / "here" / "a").exists()


def test_download_overwrites_nothing_of_ones_own(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    server.jobs[JOB], server.artifacts = completed(), {"a.txt": b"theirs", "b.txt": b"x"}
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").write_text("mine")
    ran = cli("download", JOB, "--to", "here")
    assert ran.code == 5
    assert "a.txt in" in ran.err
    assert "--force" in ran.err
    assert [path.read_text() for path in (tmp_path / "here").iterdir()] == ["mine"]
    assert cli("download", JOB, "--to", "here", "--force").code == 0
    assert (tmp_path / "here" / "a.txt").read_text() == "theirs"


def test_a_job_without_artifacts_says_so(cli: Cli, server: FakeServer) -> None:
    server.jobs[JOB] = completed()
    assert "CRUCIBLE_OUTPUT_DIR" in cli("download", JOB).err


def test_places(cli: Cli, server: FakeServer) -> None:
    capacity = {"cpus": 2.0, "memory_bytes": 4 * 1024**3, "gpus": [0]}
    server.backends = [{"name": "local", "connected": True, "offers": [{"capacity": capacity}]}]
    ran = cli("backends")
    assert "2 CPUs, 4 GiB, 1 GPU" in ran.out
    assert ran.err == "○ Not connected, and no command connects aws yet: prices are compared.\n"
    found = cli("backends", "--json").json
    assert (found["items"][0]["name"], found["others"][0]["name"]) == ("local", "aws")
    assert "No machine" in cli("machines").err


def test_tiers_need_no_server(cli: Cli, tmp_path: Path) -> None:
    assert "CPU_SMALL" in cli("tiers").out
    assert cli("tiers", "--json").json["items"][0]["id"] == "CPU_SMALL"
    assert not (tmp_path / "home").exists()


def test_init_writes_a_job_file_that_runs_and_never_overwrites(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    assert cli("init").code == 0
    assert cli("run", "job.yaml", "-d").code == 0
    assert server.specs[0]["command"] == ["{python}", "train.py"]
    (tmp_path / "job.yaml").write_text("mine")
    assert cli("init").code == 5
    assert (tmp_path / "job.yaml").read_text() == "mine"
    assert cli("init", "--force").code == 0
    assert "script: train.py" in (tmp_path / "job.yaml").read_text()
    assert cli("init", "--schema").json["title"] == "Crucible job file"


def test_doctor_checks_everything_and_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    ran = cli("doctor", "--json")
    found = {check["name"]: check for check in ran.json["checks"]}
    assert found["server"]["state"] == "info"
    assert {"python", "state folder", "disk", "clock", "ports", "uv", "git"} <= set(found)
    assert not (tmp_path / "home").exists()


def test_doctor_says_when_a_named_server_is_down(cli: Cli) -> None:
    ran = cli("doctor", "--server", "http://127.0.0.1:9")
    assert ran.code == 1
    assert "BROKEN" in ran.out
    assert "does not answer" in ran.out


def test_doctor_tells_why_the_last_start_failed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    told = {"error": {"code": "disk_full", "what": "The disk is full.", "why": "", "fix": "Make room."}}
    (tmp_path / "home" / "server.log").write_text(json.dumps(told) + "\n")
    ran = cli("doctor")
    assert "the last start failed: The disk is full." in ran.out
    assert "Make room." in ran.out


def test_doctor_says_the_truth_inside_a_job(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_JOB_ID", JOB)
    found = {check["name"]: check for check in cli("doctor", "--json").json["checks"]}
    assert "inside a job none is started" in found["server"]["detail"]
    assert "CRUCIBLE_SERVER" in found["server"]["fix"]


def test_doctor_looks_at_a_running_server(cli: Cli, server: FakeServer) -> None:
    ran = cli("doctor", "--json")
    found = {check["name"]: check for check in ran.json["checks"]}
    assert found["server"]["state"] == "ok"
    assert found["database"]["state"] == "ok"


def test_up_and_down_are_about_the_embedded_server(cli: Cli, server: FakeServer) -> None:
    assert cli("up").code == 2
    assert cli("down").code == 2


def test_machines_that_are_gone_are_left_out_unless_asked_for(cli: Cli, server: FakeServer) -> None:
    server.machines = [{"id": "mch-1", "state": "up"}, {"id": "mch-2", "state": "gone"}]
    assert "mch-2" not in cli("machines").out
    assert "mch-2" in cli("machines", "--all").out
    assert [item["id"] for item in cli("machines", "--json").json["items"]] == ["mch-1"]


def test_up_says_where_it_is(cli: Cli, our_server: FakeServer) -> None:
    ran = cli("up")
    assert ran.code == 0
    assert our_server.url in ran.out
    assert cli("up", "--json").json["url"] == our_server.url


def test_down_without_a_server_is_no_error(cli: Cli) -> None:
    ran = cli("down")
    assert ran.code == 0
    assert "No server was up" in ran.err


def test_down_asks_when_something_runs_and_never_without_a_terminal(cli: Cli, our_server: FakeServer) -> None:
    our_server.running = 2
    ran = cli("down")
    assert ran.code == 2
    assert "2 running: they go on" in ran.err
    assert "--yes" in ran.err
    assert not our_server.stopped
    (line,) = cli("down", "--json").err.splitlines()
    assert json.loads(line)["error"]["code"] == "bad_input"


def test_down_names_the_jobs_that_are_still_being_cancelled(cli: Cli, our_server: FakeServer) -> None:
    our_server.running, our_server.jobs = 1, {JOB: job_view(desired="cancel")}
    assert "job-abc123 still being cancelled" in cli("down").err
    assert cli("down", "--yes", "--json").json["cancelling"] == ["job-abc123"]


def test_down_stops_it_and_says_what_goes_on(cli: Cli, our_server: FakeServer) -> None:
    our_server.running = 2
    ran = cli("down", "--yes", "--json")
    assert ran.code == 0
    assert ran.json == {"stopped": True, "running": 2, "queued": 0, "billing": 0, "cancelling": []}
    assert our_server.stopped


def test_our_token_goes_to_our_own_server_and_to_no_other(
    cli: Cli, our_server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUCIBLE_SERVER", our_server.url)
    assert cli("jobs").code == 0
    monkeypatch.setenv("CRUCIBLE_SERVER", our_server.url.replace("127.0.0.1", "localhost"))
    assert cli("jobs").code == 4
