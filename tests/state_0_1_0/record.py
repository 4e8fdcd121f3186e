"""Records the state folders of version 0.1.0 that test_state_of_0_1_0.py opens.

    git worktree add --detach /tmp/crucible-0.1.0 adc3702
    cd /tmp/crucible-0.1.0 && scripts/setup.sh dev
    .venv/bin/python THIS_FILE THE_ARCHIVE.tar.xz

It runs that version's own server, agents and test harness, on Linux. The archive holds two state folders, named after
the channel between agents and server:

- `https` has jobs that ended in every way, people, secrets, hooks and a simulated cloud, and
- both have jobs that had not ended when server and agents were killed: `_leave_unfinished` says in which state.

Beside them lie `snapshot.json`, what the API said of the jobs that ended and the secrets it gave away once, and
`postgres.sql`, a PostgreSQL database with one job in it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.getcwd())  # version 0.1.0's own tests
os.environ["TZ"] = "UTC"

from api_snapshot import take_snapshot
from crucible.agent.bootstrap import Bootstrap, Order
from crucible.agent.channels import machine_line
from crucible.agent.folders import AttemptFolder
from tests import plugin_packages
from tests.e2e.support import packed, upload
from tests.harness import Deployment, View, python, shell, until
from tests.postgres import QUICK, server
from tests.webhook_receiver import Receiver

from crucible import __version__
from crucible.agent.clock import Deadline, boottime
from crucible.backends.rehearsal.connection import Connection

SMALL = {"resources": {"cpus": 0.25, "memory_bytes": 128 * 1024**2}}
SECRET = "hf_0123456789abcdef"
PASSWORD = "a long sentence nobody guesses"
LEFT_OUT = ("cache", "envs", "uploads", "server.log")
LONG = 120.0

COUNTS = """\
import os, pathlib, time
import crucible

output = pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"])
gate = output.parents[4] / "gate"
first, found = 1, os.environ.get("CRUCIBLE_RESUME_FROM")
if found:
    first = int(pathlib.Path(found).read_text()) + 1
print("begins with", first, flush=True)
for step in range(first, 21):
    print("step", step, flush=True)
    crucible.report(step=step, loss=1 / step)
    if step == 10:
        crucible.checkpoint.save(b"10", step=10)
        (output.parents[4] / f"half-way-{os.environ['CRUCIBLE_JOB_ID']}").touch()
        while not gate.exists():
            time.sleep(0.05)
            if os.environ.get("CHATTY"):
                print("waits", flush=True)
(output / "counted.bin").write_bytes(bytes(range(256)) * 100)
print("end", flush=True)
"""
"""Stands still after ten steps until there is a file `gate` in the state folder."""

DIGESTS = "import hashlib, os; print(hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest())"

TRAINS = """\
import os, pathlib
import crucible
import helper

output = pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"])
print("token", os.environ["TOKEN"])
for step in range(1, 301):
    print(f"line {step} of the output, {helper.WORD}")
    crucible.report(step=step, loss=1 / step, accuracy=step / 300)
    if step % 100 == 0:
        crucible.checkpoint.save(b"step %d" % step * 50, step=step, metric=1 / step)
(output / "deep").mkdir()
(output / "model.bin").write_bytes(bytes(range(256)) * 64)
(output / "deep" / "näme.txt").write_text("a file in a folder")
(output / "empty").touch()
crucible.result({"accuracy": 1.0, "words": ["a", "b"]})
"""

SPOT = """\
import os, pathlib, signal, sys, time
import crucible

found = os.environ.get("CRUCIBLE_RESUME_FROM")
if found:
    print("goes on from", pathlib.Path(found).read_text(), flush=True)
    sys.exit()
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
print("begins", flush=True)
while not stopping:
    time.sleep(0.05)
crucible.checkpoint.save(b"the first half", step=1)
"""

SCRIPT = """\
import os

def train():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(6000, 784), torch.zeros(6000, dtype=torch.long))
    for epoch in range(3):
        for x, y in torch.utils.data.DataLoader(data, batch_size=64):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

try:
    train()
except ImportError:
    sum(range(3_000_000))
with open(os.path.join(os.environ["CRUCIBLE_OUTPUT_DIR"], "notes.txt"), "w") as file:
    file.write("from a script")
"""
"""A program of which a plan says how long it takes."""


def main(archive: Path) -> None:
    root = Path(tempfile.mkdtemp(prefix="crucible-0.1.0-"))
    try:
        documents = {"version": __version__, "https": record_https(root), "store": record_store(root)}
        (root / "postgres.sql").write_text(record_postgres(root))
        (root / "snapshot.json").write_text(json.dumps(documents, indent=1, sort_keys=True, ensure_ascii=False))
        with tarfile.open(archive, "w:xz", preset=9) as out:
            for name in ("snapshot.json", "postgres.sql", "https", "store"):
                out.add(root / name, name, filter=_anonymous)
    finally:
        shutil.rmtree(root)


def record_https(root: Path) -> View:
    env = {
        "CRUCIBLE_BACKENDS": "local,rehearsal",
        "CRUCIBLE_SHARED_COMPUTER": "true",
        "CRUCIBLE_WEBHOOK_HOSTS": "127.0.0.1",
        "CRUCIBLE_MODELS_PYTHON": str(_make_models(root / "models")),
    }
    with Deployment(root / "at", env) as crucible, Receiver() as receiver:
        Connection(crucible.home / "rehearsal", seconds=30).call(
            "PATCH", "/admin/faults", {"boot_seconds": 0, "shutdown_seconds": 0}
        )
        given = _make_people(crucible)
        hook = _post(crucible, "/projects/default/hooks", {"url": receiver.url("localhost")})
        jobs = _finish_jobs(crucible, given["ada"])
        until(lambda: len(receiver.received) >= 3, LONG, "messages to the receiver")
        until(lambda: crucible.get("/api/v1/predictions")["items"], LONG, "a prediction")
        for name in ("trained", "rented"):
            path = f"/api/v1/jobs/{jobs[name]}/checkpoints"
            until(lambda path=path: all(c["why"] for c in crucible.get(path)["items"]), LONG, "retention to look")
        with crucible.client() as client:
            snapshot = take_snapshot(
                lambda path: client.get(f"/api/v1{path}").raise_for_status().content, list(jobs.values())
            )
        tokens = {**given, "secret": SECRET, "hook": {"id": hook["id"], "secret": hook["secret"]}}
        checkpoint = snapshot["jobs"][jobs["trained"]]["checkpoints"]["items"][0]["id"]
        unfinished = _leave_unfinished(crucible, checkpoint)
    _keep(crucible.home, root / "https")
    return {"home": str(crucible.home), "jobs": jobs, "given": tokens, "unfinished": unfinished, "snapshot": snapshot}


def record_store(root: Path) -> View:
    with Deployment(root / "at-store", {"CRUCIBLE_CHANNEL": "store"}) as crucible:
        _put(crucible, "/projects/default/secrets/TOKEN", {"value": SECRET})
        unfinished = _leave_unfinished(crucible, None)
    _keep(crucible.home, root / "store")
    return {"home": str(crucible.home), "unfinished": unfinished}


def record_postgres(root: Path) -> str:
    """The statements that make the database anew."""
    with server(*QUICK) as postgres, postgres.database() as url:
        with Deployment(root / "at-postgres", {"CRUCIBLE_DATABASE": url}) as crucible:
            assert crucible.wait(crucible.submit(shell("echo hello", name="hello")), LONG)["status"] == "completed"
            crucible.stop()
        dump = ["pg_dump", "--inserts", "--no-owner", "--no-privileges", "--no-comments", url]
        done = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=LONG)
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("\\"))


# Jobs that ended


def _finish_jobs(crucible: Deployment, token: str) -> dict[str, str]:
    code = upload(crucible, packed(main=TRAINS, helper="WORD = 'wörd'"))
    trained = crucible.submit(
        {
            "name": "trained",
            "command": ["{python}", "main.py"],
            "bundle": code,
            "secrets": {"TOKEN": "TOKEN"},
            "env": {"MODE": "fast"},
            "tags": ["lr=0.1", "best"],
            "keep": {"latest": 2},
            **SMALL,
        }
    )
    crucible.wait(trained, LONG)
    _post(crucible, f"/jobs/{trained}/notes", {"text": "the best so far"})
    failed = crucible.submit(shell("echo to stderr >&2; exit 3", name="failed", **SMALL))
    crucible.wait(failed, LONG)
    cancelled = crucible.submit(shell("echo begun; sleep 600", name="cancelled", **SMALL))
    until(lambda: crucible.log(cancelled), LONG, "the first line")
    crucible.cancel(cancelled)
    retried = crucible.submit(shell("exit 1", name="retried", retries={"user": 1, "wait_seconds": 0}, **SMALL))
    adas = _post(crucible, "/jobs", shell("echo hello from ada", name="adas", **SMALL), token)["id"]
    model = _post(crucible, "/models/counter/jobs", {"config": {"epochs": 2}, "job": {"name": "model", **SMALL}})["id"]
    rented = _rent(crucible)
    script = crucible.home.parent / "train.py"
    script.write_text(SCRIPT)
    done = crucible.cli("run", str(script), "--name", "planned", seconds=LONG)
    assert done.returncode == 0, (done.stdout, done.stderr)
    planned = crucible.job("last")["id"]
    jobs = {
        "trained": trained,
        "failed": failed,
        "cancelled": cancelled,
        "retried": retried,
        "adas": adas,
        "model": model,
        "rented": rented,
        "planned": planned,
    }
    ends = {name: crucible.wait(job, LONG)["status"] for name, job in jobs.items()}
    bad = {"failed": "failed", "retried": "failed", "cancelled": "cancelled"}
    assert ends == {name: bad.get(name, "completed") for name in jobs}, ends
    machines = "/api/v1/machines"
    until(lambda: all(m["backend"] == "local" for m in crucible.get(machines)["items"]), LONG, "rented machines to end")
    return jobs


def _rent(crucible: Deployment) -> str:
    """A job on a spot machine that is taken back, and on another: its cost is the bill of two machines."""
    job = crucible.submit(
        python(SPOT, name="rented", backend="rehearsal", market="spot", resources={"cpus": 1, "memory_bytes": 2**30})
    )
    until(lambda: crucible.log(job), LONG, "the first line")
    machine = crucible.job(job)["attempts"][0]["machine"]
    (native,) = (m["native_id"] for m in crucible.get("/api/v1/machines")["items"] if m["id"] == machine)
    cloud = Connection(crucible.home / "rehearsal", seconds=30)
    cloud.call("POST", f"/admin/instances/{native}/reclaim", {"notice": 20.0})
    crucible.wait(job, LONG)
    return job


def _make_people(crucible: Deployment) -> View:
    """The tokens that were given, and the password."""
    for words, said in (
        (("projects", "add", "vision", "--about", "pictures"), None),
        (("users", "add", "ada", "--password-stdin"), f"{PASSWORD}\n"),
        (("projects", "grant", "vision", "ada", "member"), None),
        (("secrets", "set", "TOKEN"), f"{SECRET}\n"),
    ):
        done = crucible.cli(*words, input=said)
        assert done.returncode == 0, (words, done.stderr)
    made = {}
    for name in ("ada", "revoked"):
        done = crucible.cli("tokens", "create", name, "--user", "ada", "--days", "0", "--json")
        made[name] = json.loads(done.stdout)
    done = crucible.cli("tokens", "revoke", made["revoked"]["id"], "--yes")
    assert done.returncode == 0, done.stderr
    return {"ada": made["ada"]["token"], "revoked": made["revoked"]["token"], "password": PASSWORD}


def _make_models(folder: Path) -> Path:
    packages = plugin_packages.make_python(folder)
    plugin_packages.install(packages, "counting", plugin_packages.COUNTER, {"counter": "counting:Counter"})
    return folder / "bin" / "python"


# Jobs that had not ended


def _leave_unfinished(crucible: Deployment, checkpoint: str | None) -> dict[str, str]:
    """Jobs by name.

    `lost` ran, and its runner died. Of `ordered` and `secretive` the host had written the order down and started
    nothing. `placed` had its machine, whose host had not asked for it yet. `waiting` wants a whole computer.
    """
    lost = crucible.submit(python(COUNTS, name="lost", env={"CHATTY": "1"}, retries={"wait_seconds": 0}, **SMALL))
    until(lambda: crucible.get(f"/api/v1/jobs/{lost}/checkpoints")["items"], LONG, "the checkpoint")
    (host,) = crucible.hosts()
    os.kill(host, signal.SIGSTOP)
    ordered = crucible.submit(python(COUNTS, name="ordered", **SMALL))
    secretive = crucible.submit(python(DIGESTS, name="secretive", secrets={"TOKEN": "TOKEN"}, **SMALL))
    placed = crucible.submit(
        {
            "name": "placed",
            "command": ["{python}", "main.py"],
            "bundle": upload(crucible, packed(main=TRAINS, helper="WORD = 'wörd'")),
            "secrets": {"TOKEN": "TOKEN"},
            "resume_from": checkpoint,
            **SMALL,
        }
    )
    plan = _post(crucible, "/plan", {"code": SCRIPT})["id"]
    waiting = crucible.submit(shell("echo it ran; echo done > $CRUCIBLE_OUTPUT_DIR/ran.txt", name="waiting", plan=plan))
    jobs = {"lost": lost, "ordered": ordered, "secretive": secretive, "placed": placed, "waiting": waiting}
    for job in (ordered, secretive, placed):
        until(lambda job=job: crucible.job(job)["attempts"], LONG, "a place")
    until(lambda: crucible.job(waiting)["waiting"], LONG, "the job to wait")
    for job in (ordered, secretive):
        _write_order(crucible, crucible.job(job)["attempts"][0]["id"])
    crucible.kill()
    attempt = _only(crucible.home.glob("machines/*/attempts/*/process.json")).parent
    until(lambda: list((attempt / "output.log").glob("*.log")), LONG, "output that the server has not got")
    os.kill(
        json.loads((attempt / "runner.json").read_bytes())["pid"], signal.SIGKILL
    )  # first: it would report the rest
    return jobs


def _write_order(crucible: Deployment, attempt: str) -> None:
    """Do what the host does with an attempt up to the fork: fetch the document, and write the order down."""
    folder = _only(crucible.home.glob("machines/*"))
    bootstrap = Bootstrap.read(folder / "bootstrap.json")
    line = machine_line(bootstrap, (folder / "secret").read_text().strip())
    until_known = time.monotonic() + LONG
    while time.monotonic() < until_known:
        overdue = time.monotonic() + line.ask(0, 5.0, None)
        if line.socket is not None:
            select.select([line.socket.fileno()], [], [], max(0.0, overdue - time.monotonic()))
        else:
            time.sleep(max(0.0, overdue - time.monotonic()))
        desired = line.answer()
        for assignment in desired.assignments if desired else ():
            if assignment.attempt == attempt:
                where = AttemptFolder.of(bootstrap.attempts, attempt, assignment.rank)
                where.create()
                deadline = Deadline.after(desired.ends_in, boottime())
                Order(assignment, bootstrap, desired.lease_seconds, deadline).write(where.root)
                return
    raise AssertionError("the attempt was not in the document")


# Small things


def _only(found: Any) -> Path:
    (path,) = found
    return path


def _post(crucible: Deployment, path: str, body: View, token: str | None = None) -> View:
    with crucible.client(LONG) as client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return dict(client.post(f"/api/v1{path}", json=body, headers=headers).raise_for_status().json())


def _put(crucible: Deployment, path: str, body: View) -> None:
    with crucible.client() as client:
        client.put(f"/api/v1{path}", json=body).raise_for_status()


def _keep(home: Path, target: Path) -> None:
    """A copy of the state folder without what only saves time."""
    shutil.copytree(home, target, symlinks=True, ignore=lambda at, names: LEFT_OUT if Path(at) == home else ())


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry if entry.isreg() or entry.isdir() or entry.issym() else None


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
