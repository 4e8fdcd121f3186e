"""All commands but run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob
from tests.control.harness import new_id

from crucible.core.ids import Prefix

pytestmark = pytest.mark.enable_socket


def test_status_lists_active_jobs(cli: Cli, real: RealServer) -> None:
    assert "No job is active" in cli("status").err
    job, ended = real.start(name="first"), real.complete()
    real.run(job.progress, epoch=1, total_epochs=4, loss=0.5)
    ran = cli("status")
    assert job.short in ran.out
    assert "epoch 1/4, loss 0.5" in ran.out
    assert ended.short not in ran.out


def test_status_of_one(cli: Cli, real: RealServer) -> None:
    job = real.complete(3, output=b"one\nlast line\n")
    ran = cli("status", job.short.removeprefix("job-"))
    assert "failed" in ran.out
    assert "The program ended with an error.\n" in ran.out
    assert "Its last lines say why" in ran.out
    assert "last line" in ran.out
    found = cli("status", job.id, "--json").json
    assert {"id", "status", "phase", "backend", "progress", "cost"} <= set(found)


def test_jobs_are_filtered_and_limited(cli: Cli, real: RealServer) -> None:
    failed, runs = real.complete(1), real.start()
    assert [job["id"] for job in cli("jobs", "--json").json["items"]] == [runs.id, failed.id]
    assert cli("jobs", "--status", "failed", "-q").out == f"{failed.id}\n"
    assert cli("jobs", "--limit", "1", "-q").out == f"{runs.id}\n"
    assert "Did you mean 'failed'" in cli("jobs", "--status", "faild").err


def test_tables_are_plain_text(cli: Cli, real: RealServer) -> None:
    real.start(command=("evil\x1b[2J",))
    out = cli("jobs").out
    assert "\x1b" not in out
    assert "evil" in out
    assert out.splitlines()[0].startswith("JOB")


def test_events_are_listed(cli: Cli, real: RealServer) -> None:
    job = real.start()
    first = cli("events", job.id).out.splitlines()[0]
    assert first.startswith("   1  2023-11-14T22:13:20.000Z  submitted  {")
    events = cli("events", job.id, "--json").lines
    assert [event["type"] for event in events][:: len(events) - 1] == ["submitted", "started"]


def test_logs_print_what_there_is(cli: Cli, real: RealServer) -> None:
    job = real.start()
    real.run(job.write, "one\nzwölf\nthree".encode())
    assert cli("logs", "last").out == "one\nzwölf\nthree"
    assert cli("logs", "last", "--grep", "zw").out == "zwölf\n"
    assert cli("logs", "last", "--grep", "^z", "--regex").out == "zwölf\n"
    assert cli("logs", "last", "--json").lines[2] == {"attempt": 1, "line": "three"}
    assert cli("logs", "last", "--since", "10m").code == 0
    assert cli("logs", "last", "--grep", "(", "--regex").code == 2
    assert cli("logs", "last", "--grep", "(", "--regex", "--since", "10m").code == 2


def test_logs_since_a_time_are_searched_here(cli: Cli, real: RealServer) -> None:
    real.harness.clock.time = time.time()
    job = real.start()
    real.run(job.write, b"early\n")
    real.harness.clock.move(3600)
    real.run(job.write, "zwei\nzwölf\n".encode())
    real.harness.clock.move(60)
    assert cli("logs", "last", "--since", "10m", "--grep", "^z", "--regex").out == "zwei\nzwölf\n"


def test_logs_follow_to_the_end_and_return_the_jobs_code(cli: Cli, real: RealServer) -> None:
    job = real.start()
    real.run(job.write, b"one\ntwo\n")

    async def play(_: RunningJob) -> None:
        await job.write(b"three\n")
        await job.end(7)

    real.play_now(job, play)
    ran = cli("logs", "-f", job.id)
    assert ran.code == 7
    assert ran.out == "one\ntwo\nthree\n"
    assert parse_qs(real.streams[0])["offset"] == ["8"]


def test_metrics_as_sparklines(cli: Cli, real: RealServer) -> None:
    job = real.start()
    assert "no metrics yet" in cli("metrics", job.id).err
    real.run(job.points, loss=[float(8 - n) for n in range(8)], memory_bytes=[2.0**30, 9227468.8])
    out = cli("metrics", job.id).out
    assert "8.8 MiB" in out
    assert "1 GiB" in out
    assert "█▇▆▅▄▃▂▁" in out
    assert cli("metrics", job.id, "--json").json["series"]["loss"]["max"] == 8.0
    assert cli("metrics", job.id, "--series", "nosuch").code == 3


def test_one_job_is_cancelled_without_asking_several_are_not(cli: Cli, real: RealServer) -> None:
    one, two = real.start(), real.start()
    ran = cli("cancel", one.id)
    assert ran.code == 0
    assert f"{one.short} cancelled." in ran.err
    assert real.view(one).status == "cancelled"
    ran = cli("cancel", one.id, two.id)
    assert ran.code == 2
    assert "--yes" in ran.err
    assert real.view(two).desired == "run"
    ran = cli("cancel", one.id, two.id, "--yes")
    assert ran.code == 0
    assert f"{one.short} had already ended: cancelled." in ran.err
    assert f"{two.short} cancelled." in ran.err
    assert cli("cancel", two.id, "--json").json["status"] == "cancelled"


def test_cancel_need_not_wait(cli: Cli, real: RealServer) -> None:
    job, real.obeys = real.start(), False
    ran = cli("cancel", job.id, "--no-wait")
    assert (ran.code, f"{job.short} is being cancelled." in ran.err) == (0, True)


def test_a_job_that_does_not_end_in_time_is_exit_code_8(cli: Cli, real: RealServer) -> None:
    job, real.obeys = real.start(), False
    ran = cli("cancel", job.id, "--wait", "0s", "--json")
    assert ran.code == 8
    (line,) = ran.err.splitlines()
    assert "has not ended yet" in json.loads(line)["error"]["what"]


def test_cancelling_is_all_or_nothing_about_names(cli: Cli, real: RealServer) -> None:
    job = real.start()
    assert cli("cancel", job.id, "nosuch", "--yes").code == 3
    assert real.view(job).desired == "run"


def test_download_writes_below_the_jobs_name_or_where_told(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    job = real.complete(artifacts={"a/b.txt": b"hello", "c.txt": b"x"})
    ran = cli("download", job.id)
    assert (tmp_path / job.short / "a" / "b.txt").read_text() == "hello"
    assert "2 files" in ran.err
    assert "already there" not in ran.err
    assert "; all already there" in cli("download", job.id).err
    found = cli("download", job.id, "c.txt", "--to", "here", "--json").json
    assert found["file"] == str(tmp_path / "here" / "c.txt")
    assert not (tmp_path / "here" / "a").exists()


def test_download_overwrites_nothing_of_ones_own(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    job = real.complete(artifacts={"a.txt": b"theirs", "b.txt": b"x"})
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").write_text("mine")
    ran = cli("download", job.id, "--to", "here")
    assert ran.code == 5
    assert "a.txt in" in ran.err
    assert "--force" in ran.err
    assert [path.read_text() for path in (tmp_path / "here").iterdir()] == ["mine"]
    assert cli("download", job.id, "--to", "here", "--force").code == 0
    assert (tmp_path / "here" / "a.txt").read_text() == "theirs"


def test_a_job_without_artifacts_says_so(cli: Cli, real: RealServer) -> None:
    assert "has no artifacts" in cli("download", real.complete().id).err


def test_places(cli: Cli, real: RealServer) -> None:
    ran = cli("backends")
    assert "4 CPUs, 16 GiB, 2 GPU" in ran.out
    assert "○ Not connected" in ran.err
    found = cli("backends", "--json").json
    assert [item["name"] for item in found["items"]] == ["local"]
    assert "aws" in {other["name"] for other in found["others"]}
    assert "No machine" in cli("machines").err


def test_tiers_need_no_server(cli: Cli, tmp_path: Path) -> None:
    assert "CPU_SMALL" in cli("tiers").out
    assert cli("tiers", "--json").json["items"][0]["id"] == "CPU_SMALL"
    assert not (tmp_path / "home").exists()


def test_init_writes_a_job_file_that_runs_and_never_overwrites(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    assert cli("init").code == 0
    assert cli("run", "job.yaml", "-d").code == 0
    assert real.specs[0]["command"] == ["{python}", "train.py"]
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
    monkeypatch.setenv("CRUCIBLE_JOB_ID", new_id(Prefix.JOB, 1))
    found = {check["name"]: check for check in cli("doctor", "--json").json["checks"]}
    assert "inside a job none is started" in found["server"]["detail"]
    assert "CRUCIBLE_SERVER" in found["server"]["fix"]


def test_doctor_looks_at_a_running_server(cli: Cli, real: RealServer) -> None:
    ran = cli("doctor", "--json")
    found = {check["name"]: check for check in ran.json["checks"]}
    assert found["server"]["state"] == "ok"
    assert found["database"]["state"] == "ok"


def test_up_and_down_are_about_the_embedded_server(cli: Cli, real: RealServer) -> None:
    assert cli("up").code == 2
    assert cli("down").code == 2


def test_machines_that_are_gone_are_left_out_unless_asked_for(cli: Cli, real: RealServer) -> None:
    real.start()
    (machine,) = cli("machines", "--json").json["items"]
    assert cli("machines", "terminate", machine["id"], "--yes").code == 0
    real.run(real.harness.performer.perform_due)
    assert machine["short"] not in cli("machines").out
    assert machine["short"] in cli("machines", "--all").out
    assert cli("machines", "--json").json["items"] == []


def test_up_says_where_it_is(cli: Cli, our_server: RealServer) -> None:
    ran = cli("up")
    assert ran.code == 0
    assert our_server.url in ran.out
    assert cli("up", "--json").json["url"] == our_server.url


def test_down_without_a_server_is_no_error(cli: Cli) -> None:
    ran = cli("down")
    assert ran.code == 0
    assert "No server was running" in ran.err


def test_down_asks_when_something_runs_and_never_without_a_terminal(cli: Cli, our_server: RealServer) -> None:
    our_server.start()
    our_server.start()
    ran = cli("down")
    assert ran.code == 2
    assert "2 running: they continue" in ran.err
    assert "--yes" in ran.err
    assert not our_server.app.stops
    (line,) = cli("down", "--json").err.splitlines()
    assert json.loads(line)["error"]["code"] == "bad_input"


def test_down_names_the_jobs_that_are_still_being_cancelled(cli: Cli, our_server: RealServer) -> None:
    job, our_server.obeys = our_server.start(), False
    assert cli("cancel", job.id, "--no-wait").code == 0
    assert f"{job.short} still being cancelled" in cli("down").err
    assert cli("down", "--yes", "--json").json["cancelling"] == [job.short]


def test_down_stops_it_and_says_what_goes_on(cli: Cli, our_server: RealServer) -> None:
    our_server.start()
    our_server.start()
    ran = cli("down", "--yes", "--json")
    assert ran.code == 0
    assert ran.json == {"stopped": True, "running": 2, "queued": 0, "billing": 0, "cancelling": []}
    assert our_server.app.stops


def test_our_token_goes_to_our_own_server_and_to_no_other(
    cli: Cli, our_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUCIBLE_SERVER", our_server.url)
    assert cli("jobs").code == 0
    monkeypatch.setenv("CRUCIBLE_SERVER", our_server.url.replace("127.0.0.1", "localhost"))
    assert cli("jobs").code == 4
