"""A job from submission to its end, over HTTP: what it sees, what it leaves, when it runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from textwrap import dedent

import pytest
from tests.e2e.conftest import SECRET
from tests.e2e.support import make_wheel, packed, printed, upload, wait_for
from tests.harness import Deployment, View, python, shell, until

ENVIRON = "import json, os; print(json.dumps(dict(os.environ)))"
TRAINING = dedent(
    """
    import os
    for epoch in (1, 2, 3):
        print(f"epoch {epoch}/3 step={epoch * 10} loss={1 / epoch:.2f}")
    with open(os.environ["CRUCIBLE_OUTPUT_DIR"] + "/model.txt", "w") as model:
        model.write("weights")
    """
)


def test_from_submit_to_completed(crucible: Deployment) -> None:
    job = crucible.submit(python(TRAINING, name="digits", tags=["first"]))
    view = crucible.wait(job)
    assert (view["status"], view["phase"], view["exit_code"], view["signal"]) == (
        "completed",
        "completed",
        0,
        None,
    )
    assert (view["name"], view["tags"], view["backend"], view["attempt"]) == ("digits", ["first"], "local", 1)
    assert view["cost"] == {
        "usd": "0.000000",
        "micros": 0,
        "rate_micros_per_hour": 0,
        "estimated_remaining_micros": 0,
        "remaining_unknown": None,
    }
    pid = view["attempts"][0]["facts"]["started"]["pid"]
    assert view["execution_id"] == f"local-{job}-{pid}"
    assert view["placement"].startswith("local")
    assert view["created_at"] <= view["started_at"] <= view["ended_at"]
    assert crucible.log(job) == b"".join(
        b"epoch %d/3 step=%d loss=%.2f\n" % (epoch, epoch * 10, 1 / epoch) for epoch in (1, 2, 3)
    )


def test_progress_metrics_and_artifacts_of_plain_output(crucible: Deployment) -> None:
    job = crucible.submit(python(TRAINING))
    view = crucible.wait(job)
    progress = view["progress"]
    assert (progress["epoch"], progress["total_epochs"], progress["step"], progress["loss"]) == (
        3,
        3,
        30,
        0.33,
    )
    assert 0.6 < progress["fraction"] <= 1.0
    series = crucible.get(f"/api/v1/jobs/{job}/metrics")["series"]["loss"]
    assert [(step, value) for step, value, _at in series["points"]] == [(10, 1.0), (20, 0.5), (30, 0.33)]
    assert (series["count"], series["last"], series["min"], series["max"]) == (3, 0.33, 0.33, 1.0)
    assert view["metrics"]["loss"] == 0.33
    (artifact,) = crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]
    assert (artifact["path"], artifact["size"], artifact["attempt"]) == ("model.txt", 7, 1)


def test_events_are_in_order_and_without_gaps(crucible: Deployment) -> None:
    job = crucible.submit(shell("true"))
    crucible.wait(job)
    events = crucible.events(job)
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    types = [event["type"] for event in events]
    expected = ["submitted", "queued", "placed", "staging", "started", "exited", "attempt_ended", "completed"]
    assert list(dict.fromkeys(types)) == expected
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    later = crucible.get(f"/api/v1/jobs/{job}/events", after=3)["items"]
    assert later == events[3:]


def test_an_exit_code_is_the_jobs_own(crucible: Deployment) -> None:
    view = crucible.wait(crucible.submit(shell("echo oh no; exit 3")))
    assert (view["status"], view["exit_code"], view["signal"]) == ("failed", 3, None)
    assert view["reason"]["code"] == "exit_code"
    assert view["short"] in view["reason"]["advice"]
    assert view["recent_logs"][-1] == "oh no"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_is_told(crucible: Deployment, number: signal.Signals) -> None:
    view = crucible.wait(crucible.submit(shell(f"kill -{number.value} $$")))
    assert (view["status"], view["exit_code"], view["signal"]) == ("failed", None, number.value)
    assert view["reason"]["code"] == "killed"


def test_a_program_that_is_not_there(crucible: Deployment) -> None:
    job = crucible.submit({"command": ["no-such-program"]})
    view = crucible.wait(job)
    assert (view["status"], view["exit_code"]) == ("failed", 127)
    assert b"no-such-program" in crucible.log(job)


def test_a_failure_is_tried_again_as_often_as_allowed(crucible: Deployment, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    once = shell(f"[ -e '{mark}' ] && exit 0; touch '{mark}'; echo first; exit 1")
    job = crucible.submit({**once, "retries": {"user": 2, "wait_seconds": 0}})
    view = crucible.wait(job)
    assert view["status"] == "completed"
    assert [(a["number"], a["exit_code"]) for a in view["attempts"]] == [(1, 1), (2, 0)]
    assert crucible.log(job, attempt=1) == b"first\n"
    assert crucible.log(job, attempt=2) == b""


class TestWhatAJobSees:
    def test_only_named_variables(self, crucible: Deployment) -> None:
        seen = printed(crucible, python(ENVIRON, env={"MODE": "fast", "EMPTY": ""}))
        assert (seen["MODE"], seen["EMPTY"]) == ("fast", "")
        assert SECRET not in seen.values()
        ours = {name for name in seen if name.startswith("CRUCIBLE_")}
        base = {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "SHELL", "VIRTUAL_ENV"}
        assert set(seen) - ours - base <= {"MODE", "EMPTY", "PYTHONPATH", "PYTHONUNBUFFERED"}
        assert "HOME" in seen
        assert "PATH" in seen

    def test_its_crucible_variables(self, crucible: Deployment) -> None:
        job = crucible.submit(python(ENVIRON))
        attempt = crucible.wait(job)["attempts"][0]["id"]
        seen = json.loads(crucible.log(job))
        assert (seen["CRUCIBLE_JOB_ID"], seen["CRUCIBLE_ATTEMPT_ID"], seen["CRUCIBLE_RANK"]) == (
            job,
            attempt,
            "0",
        )
        folders = {"OUTPUT_DIR": "outputs", "DATA_DIR": "data", "CHECKPOINT_DIR": "checkpoints"}
        files = {"REPORT_FILE": "report.jsonl", "STOP_FILE": "stop"}
        for name, expected in {**folders, **files}.items():
            path = Path(seen[f"CRUCIBLE_{name}"])
            assert (path.name, path.parent.name) == (expected, f"{attempt}-0")
            assert path.is_relative_to(crucible.home)
        assert "CRUCIBLE_RESUME_FROM" not in seen
        assert not {"CRUCIBLE_HOME", "CRUCIBLE_TOKEN", "CRUCIBLE_BUNDLE_LIMIT"} & set(seen)

    def test_a_staged_copy_of_the_bundle(self, crucible: Deployment) -> None:
        bundle = upload(
            crucible,
            packed(
                main="import json, os, package.part; print(json.dumps([os.getcwd(), package.part.VALUE]))",
                package__part="VALUE = 7",
            ),
        )
        spec: View = {"command": ["{python}", "main.py"], "bundle": bundle}
        first, second = printed(crucible, spec), printed(crucible, spec)
        assert first[1] == second[1] == 7
        assert first[0] != second[0]
        assert Path(first[0]).name == "work"
        assert Path(first[0]).is_relative_to(crucible.home)

    def test_the_folder_itself_when_in_place(self, crucible: Deployment, tmp_path: Path) -> None:
        crucible.wait(crucible.submit(shell("pwd > here.txt", in_place=str(tmp_path))))
        assert (tmp_path / "here.txt").read_text().strip() == str(tmp_path)

    def test_its_data(self, crucible: Deployment, tmp_path: Path) -> None:
        (tmp_path / "images").mkdir()
        (tmp_path / "images" / "one.txt").write_text("1")
        (tmp_path / "table.csv").write_text("a,b")
        data = [
            {"name": "images", "source": str(tmp_path / "images")},
            {"name": "table", "source": (tmp_path / "table.csv").as_uri()},
        ]
        code = """
            import json, os, pathlib
            data = pathlib.Path(os.environ["CRUCIBLE_DATA_DIR"])
            print(json.dumps([(data / "images" / "one.txt").read_text(), (data / "table").read_text()]))
        """
        assert printed(crucible, python(dedent(code), data=data)) == ["1", "a,b"]

    def test_data_that_is_not_there_is_told(self, crucible: Deployment) -> None:
        job = crucible.submit(shell("true", data=[{"name": "x", "source": "/no/such/data"}]))
        view = crucible.wait(job)
        assert (view["status"], view["reason"]["code"]) == ("failed", "staging_failed")
        assert b"/no/such/data" in crucible.log(job)


class TestInsideAJob:
    def test_report_without_crucible_installed(self, crucible: Deployment) -> None:
        code = """
            import crucible
            for step in (1, 2, 3):
                crucible.report(step=step, loss=0.5 / step, total_steps=3)
            print(crucible.__file__)
        """
        job = crucible.submit(
            python(dedent(code), environment={"interpreter": "/usr/bin/python3", "origin": "the test"})
        )
        view = crucible.wait(job)
        assert view["status"] == "completed", crucible.log(job)
        assert str(crucible.home) in crucible.log(job).decode()
        points = crucible.get(f"/api/v1/jobs/{job}/metrics")["series"]["loss"]["points"]
        assert [(step, value) for step, value, _at in points] == [(1, 0.5), (2, 0.25), (3, 0.5 / 3)]
        assert (view["progress"]["step"], view["progress"]["total_steps"]) == (3, 3)

    def test_should_stop_sees_a_cancel(self, crucible: Deployment) -> None:
        code = """
            import crucible, time
            crucible.should_stop()
            print("ready")
            while not crucible.should_stop():
                time.sleep(0.02)
            print("saved")
        """
        job = crucible.submit(python(dedent(code)))
        until(lambda: b"ready" in crucible.log(job), what="the job's first line")
        assert crucible.cancel(job)["desired"] == "cancel"
        view = crucible.wait(job)
        assert (view["status"], view["reason"]["code"]) == ("cancelled", "cancelled")
        assert crucible.log(job) == b"ready\nsaved\n"

    def test_a_cancel_of_a_job_that_is_over_changes_nothing(self, crucible: Deployment) -> None:
        job = crucible.submit(shell("true"))
        before = crucible.wait(job)
        with crucible.client() as client:
            answer = client.post(f"/api/v1/jobs/{job}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, before["status"])


class TestQueue:
    def test_whole_machine_jobs_run_one_after_the_other(self, crucible: Deployment, tmp_path: Path) -> None:
        trace, gate = tmp_path / "trace", tmp_path / "gate"
        jobs = [
            crucible.submit(shell(f"echo +{n} >> '{trace}'; {wait_for(gate)}; echo -{n} >> '{trace}'"))
            for n in range(3)
        ]
        crucible.phase(jobs[0], "running")
        second, third = crucible.job(jobs[1]), crucible.job(jobs[2])
        assert second["phase"] == third["phase"] == "queued"
        assert crucible.job(jobs[0])["short"] in second["waiting"]
        assert third["waiting"] == "behind 1 other job in the queue"
        gate.touch()
        assert {crucible.wait(job)["status"] for job in jobs} == {"completed"}
        assert trace.read_text().split() == ["+0", "-0", "+1", "-1", "+2", "-2"]

    def test_small_jobs_run_at_the_same_time(self, crucible: Deployment, tmp_path: Path) -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        size = {"cpus": 0.5, "memory_bytes": 256 * 1024**2}
        jobs = [
            crucible.submit(shell(f"touch '{mine}'; {wait_for(yours)}", resources=size))
            for mine, yours in ((one, other), (other, one))
        ]
        assert [crucible.wait(job)["status"] for job in jobs] == ["completed", "completed"]

    def test_a_queued_job_can_be_cancelled(self, crucible: Deployment, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        holder, waiting = crucible.submit(shell(wait_for(gate))), crucible.submit(shell("true"))
        assert crucible.cancel(waiting)["status"] == "cancelled"
        gate.touch()
        assert crucible.wait(holder)["status"] == "completed"
        assert crucible.job(waiting)["attempts"] == []

    @pytest.mark.parametrize("resources", [{"cpus": 1000}, {"memory_bytes": 32 * 1024**4, "cpus": 1}, {"gpus": 100}])
    def test_more_than_the_machine_has(self, crucible: Deployment, resources: View) -> None:
        before = self._newest(crucible)
        with crucible.client() as client:
            answer = client.post("/api/v1/jobs", json=shell("true", resources=resources))
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "no_capacity")
        assert "this computer" in problem["detail"]
        assert problem["fix"]
        assert self._newest(crucible) == before

    def _newest(self, crucible: Deployment) -> list[str]:
        """Its id alone: a runner may still speak after its job has ended."""
        return [job["id"] for job in crucible.get("/api/v1/jobs", limit=1)["items"]]


def test_an_environment_is_built_once(crucible: Deployment, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "tinything", "VALUE = 42\n")
    spec = python(
        "import json, sys, tinything; print(json.dumps([tinything.VALUE, sys.prefix]))",
        environment={"requirements": [f"tinything @ {wheel.as_uri()}"], "origin": "requirements.txt"},
    )
    job = crucible.submit(spec)
    first = crucible.wait(job)
    assert first["status"] == "completed", crucible.log(job)
    value, prefix = json.loads(crucible.log(job).splitlines()[-1])
    assert value == 42
    assert Path(prefix).parent == crucible.home / "envs"
    built = Path(prefix, "pyvenv.cfg").stat()
    again = crucible.submit(spec)
    second = crucible.wait(again)
    assert json.loads(crucible.log(again)) == [42, prefix]
    now = Path(prefix, "pyvenv.cfg").stat()
    assert (now.st_ino, now.st_mtime_ns) == (built.st_ino, built.st_mtime_ns)
    assert "built now" in _about(first)
    assert "built earlier" in _about(second)


def test_a_python_that_is_not_there(crucible: Deployment) -> None:
    job = crucible.submit(python("pass", environment={"interpreter": "/no/such/python"}))
    view = crucible.wait(job)
    assert (view["status"], view["reason"]["code"]) == ("failed", "staging_failed")
    assert b"/no/such/python" in crucible.log(job)


def _about(view: View) -> str:
    return str(view["attempts"][-1]["facts"]["started"]["environment"])
