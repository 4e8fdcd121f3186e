"""Commands that look at jobs, end them, and fetch what they left."""

from __future__ import annotations

import json
import re

import pytest
from tests.e2e.terminal import Terminal

TRAINING = """\
import os
for step in range(1, 21):
    print(f"step {step}/20 loss={1 / step:.3f}")
print("fin äöü")
out = os.environ["CRUCIBLE_OUTPUT_DIR"]
os.makedirs(out + "/deep")
for name, text in {"model.txt": "weights", "deep/notes.txt": "ünïcode"}.items():
    with open(os.path.join(out, name), "w", encoding="utf-8") as file:
        file.write(text)
"""


@pytest.fixture(scope="module")
def job(terminal: Terminal) -> str:
    """A job that is over."""
    found = terminal.json("run", "-c", TRAINING, "--detach", "--name", "steps")
    assert terminal.crucible.wait(found["id"])["status"] == "completed"
    return str(found["id"])


def test_status_of_one(terminal: Terminal, job: str) -> None:
    found = terminal.json("status", job)
    assert {"id", "status", "phase", "backend", "progress", "cost"} <= set(found)
    assert (found["id"], found["status"], found["backend"]) == (job, "completed", "local")
    assert (found["progress"]["step"], found["cost"]["micros"]) == (20, 0)
    shown = terminal.ok("status", job[-6:])
    assert job in shown
    assert "completed" in shown
    assert "fin äöü" in shown
    assert terminal.ok("status", job[-6:], "--quiet").strip() == job


def test_status_of_all_and_cancel(terminal: Terminal, job: str) -> None:
    assert terminal.json("status") == {"items": []}
    running = terminal.json("run", "--shell", "echo begun; sleep 60", "--detach")["id"]
    waiting = terminal.json("run", "--shell", "true", "--detach")["id"]
    terminal.crucible.phase(running, "running")
    shown = terminal.ok("status")
    assert running[-6:] in shown
    assert waiting[-6:] in shown
    assert job[-6:] not in shown
    unasked = terminal.run("cancel", running, waiting)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    asked = terminal.run("logs", waiting)
    assert (asked.returncode, asked.stdout) == (0, "")
    assert "has not started. Waiting: " in asked.stderr
    assert "Will run on" in terminal.ok("status", waiting)
    assert "Running on" not in terminal.ok("status", waiting)
    assert f"job-{waiting[-6:]} cancelled." in terminal.run("cancel", waiting).stderr
    assert terminal.json("status", waiting)["status"] == "cancelled"
    assert "Ran on" not in terminal.ok("status", waiting)
    assert terminal.json("cancel", running)["status"] == "cancelled"
    again = terminal.run("cancel", running)
    assert (again.returncode, "already ended: cancelled" in again.stderr) == (0, True)
    done = terminal.run("logs", "-f", running)
    assert done.stdout == "begun\n"
    assert done.returncode != 0
    assert f"job-{running[-6:]} cancelled after" in done.stderr


def test_jobs(terminal: Terminal, job: str) -> None:
    assert job[-6:] in terminal.ok("jobs")
    assert "python main.py" in terminal.ok("jobs")
    assert terminal.json("status", "steps")["id"] == job
    assert [item["id"] for item in terminal.json("jobs", "--name", "steps")["items"]] == [job]
    assert terminal.json("jobs", "--tag", "nobody-has-this") == {"items": []}
    assert job in [item["id"] for item in terminal.json("jobs", "--status", "completed")["items"]]
    assert job not in [item["id"] for item in terminal.json("jobs", "--status", "failed")["items"]]
    wrong = terminal.run("jobs", "--status", "complete")
    assert (wrong.returncode, "'completed'" in wrong.stderr) == (2, True)


def test_logs(terminal: Terminal, job: str) -> None:
    whole = terminal.ok("logs", job)
    assert whole.encode() == terminal.crucible.log(job)
    assert terminal.ok("logs", "-f", job) == whole
    assert terminal.ok("logs", job, "--regex", "--grep", r"^step 1\d/") == "".join(
        line for line in whole.splitlines(keepends=True) if re.match(r"step 1\d/", line)
    )
    assert terminal.ok("logs", job, "--since", "1h") == whole
    assert terminal.ok("logs", job, "--since", "0s") == ""
    lines = [json.loads(line) for line in terminal.ok("logs", job, "--json").splitlines()]
    assert [line["line"] for line in lines] == whole.splitlines()
    assert terminal.run("logs", job, "--regex", "--grep", "(").returncode == 2
    assert terminal.run("logs", job, "--attempt", "9").returncode == 3


def test_metrics_and_events(terminal: Terminal, job: str) -> None:
    loss = terminal.json("metrics", job)["series"]["loss"]
    assert (loss["count"], loss["min"], loss["max"]) == (20, 0.05, 1.0)
    assert re.search(r"loss +[▁▂▃▄▅▆▇█]+ +0.05 +0.05 +1 +20", terminal.ok("metrics", job, "--series", "loss"))
    assert terminal.run("metrics", job, "--series", "accuracy").returncode == 3
    events = [json.loads(line) for line in terminal.ok("events", job, "--json").splitlines()]
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "completed"


def test_download(terminal: Terminal, job: str) -> None:
    terminal.ok("download", job, "--to", "got")
    assert (terminal.folder / "got" / "model.txt").read_text() == "weights"
    assert (terminal.folder / "got" / "deep" / "notes.txt").read_text(encoding="utf-8") == "ünïcode"
    assert "all already there" in terminal.run("download", job, "--to", "got").stderr
    (terminal.folder / "got" / "model.txt").write_text("mine")
    refused = terminal.run("download", job, "--to", "got")
    assert (refused.returncode, "model.txt" in refused.stderr) == (5, True)
    assert (terminal.folder / "got" / "model.txt").read_text() == "mine"
    terminal.ok("download", job, "deep", "--to", "part")
    assert [path.name for path in (terminal.folder / "part").iterdir()] == ["deep"]
    terminal.ok("download", job)
    assert (terminal.folder / f"job-{job[-6:]}" / "model.txt").exists()
    assert terminal.run("download", job, "no-such-file").returncode == 3


def test_places(terminal: Terminal, job: str) -> None:
    (local,) = terminal.json("backends")["items"]
    assert (local["name"], local["connected"]) == ("local", True)
    assert re.search(r"local +yes", terminal.ok("backends"))
    assert "CPU_SMALL" in {tier["id"] for tier in terminal.json("tiers")["items"]}
    assert "CPU_SMALL" in terminal.ok("tiers")
    assert {item["backend"] for item in terminal.json("machines", "--all")["items"]} == {"local"}


def test_doctor(terminal: Terminal, job: str) -> None:
    found = terminal.json("doctor")
    assert found["ok"] is True
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["server"] == states["database"] == "ok"
    assert "server" in terminal.ok("doctor")


def test_up_and_down(terminal: Terminal, job: str) -> None:
    url = terminal.json("up")["url"]
    assert terminal.json("up")["url"] == url
    assert terminal.json("down")["stopped"] is True
    assert not terminal.is_up()
    assert terminal.json("down")["stopped"] is False
    assert "not running" in terminal.ok("doctor")
    assert not terminal.is_up()
    assert terminal.json("status", job)["status"] == "completed"
    assert terminal.is_up()
    terminal.ok("down")
    assert terminal.json("up")["url"]
    assert terminal.is_up()


def test_down_says_what_still_runs(terminal: Terminal) -> None:
    running = terminal.json("run", "--shell", "sleep 60", "--detach")["id"]
    terminal.crucible.phase(running, "running")
    asked = terminal.run("down")
    assert (asked.returncode, "1 running" in asked.stderr) == (2, True)
    assert terminal.is_up()
    terminal.ok("down", "--yes")
    assert terminal.json("status", running)["phase"] == "running"
    terminal.ok("cancel", running)
    assert terminal.crucible.wait(running)["status"] == "cancelled"
