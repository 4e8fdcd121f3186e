"""A server that no agent can reach: its listener for agents answers nobody, and jobs run through the store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.support import packed, upload, wait_for
from tests.harness import Deployment, View, alive, python, shell, until
from tests.storage.servers import bucket_options, seaweedfs

from crucible.storage import NotFound, Store, open_store

DEAF_SERVER = """\
import json
import os
import signal
import sys
from crucible import app
from crucible.server.agents import api as agents

async def deaf(scope, receive, send):
    if scope["type"] == "http":
        with open(sys.argv[1], "a") as calls:
            calls.write(scope["path"] + "\\n")
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

agents.build_agents_api = lambda *given: deaf
sys.exit(app.main(sys.argv[5:], leave=app.exit_soon))
"""

PROGRAM = """\
import os
import crucible

for number in range(200):
    print("line", number, flush=True)
crucible.report(step=1, loss=0.5)
with open(os.path.join(os.environ["CRUCIBLE_OUTPUT_DIR"], "result.bin"), "wb") as file:
    file.write(bytes(range(256)) * 1000)
"""


class StoreOnlyDeployment(Deployment):
    """`calls` names the file of what agents asked the listener for."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, {"CRUCIBLE_CHANNEL": "store", **(env or {})})
        self.calls = folder / "calls"

    def start(self, *prefix: str, seconds: float = 30.0, **env: str) -> float:
        return super().start(*prefix, sys.executable, "-c", DEAF_SERVER, str(self.calls), seconds=seconds, **env)


@pytest.fixture
def crucible(tmp_path: Path) -> Iterator[StoreOnlyDeployment]:
    deployment = StoreOnlyDeployment(tmp_path)
    with deployment:
        yield deployment
        assert not deployment.calls.exists(), "no agent has called"


@pytest.fixture
def in_bucket(tmp_path: Path) -> Iterator[StoreOnlyDeployment]:
    """Its store is a bucket, for which the agents have no credentials."""
    with seaweedfs() as server:
        deployment = StoreOnlyDeployment(tmp_path, server.settings())
        with deployment:
            yield deployment
        assert not deployment.calls.exists(), "no agent has called"
        assert not (deployment.home / "store" / "mailboxes").exists()


def test_a_job_runs_whole(crucible: StoreOnlyDeployment) -> None:
    _runs_whole(crucible)


@pytest.mark.timeout(300)
def test_a_job_runs_whole_through_a_bucket(in_bucket: StoreOnlyDeployment) -> None:
    _runs_whole(in_bucket)


@pytest.mark.timeout(300)
def test_nothing_secret_lies_in_a_bucket(in_bucket: StoreOnlyDeployment, tmp_path: Path) -> None:
    """Neither a project's secret nor a variable, nor what the agent signs with, at any moment of the job."""
    gate, value, variable = tmp_path / "gate", "a-secret-of-the-project", "a-value-of-the-user"
    with in_bucket.client() as client:
        assert client.put("/api/v1/projects/default/secrets/TOKEN", json={"value": value}).status_code == 201
    given = {"secrets": {"HF": "TOKEN"}, "env": {"PLAIN": variable}}
    (tmp_path / "expected").write_text(value + variable)
    program = shell(f'[ "$HF$PLAIN" = "$(cat {tmp_path}/expected)" ] && {wait_for(gate)} && exit 7', **given)
    lying: dict[bytes, str] = {}
    job = in_bucket.submit(program)
    store = open_store(in_bucket.env["CRUCIBLE_STORE"], bucket_options(in_bucket.env))
    until(lambda: _collect(store, lying) and in_bucket.job(job)["phase"] == "running", 90, "the program")
    (order,) = in_bucket.home.glob("machines/*/attempts/*/assignment.json")
    own = json.loads(order.read_text())["desired"]["assignments"][0]["secret"]
    gate.touch()
    until(lambda: _collect(store, lying) and in_bucket.job(job)["status"] == "failed", 90, "its end")
    assert in_bucket.job(job)["exit_code"] == 7
    found = [(name, one) for raw, name in lying.items() for one in (value, variable, own) if one.encode() in raw]
    assert found == []
    documents = [raw for raw, name in lying.items() if name.endswith(("/alive", "/down", "/claim"))]
    assert len(documents) > 5
    assert all(raw.startswith(b"encrypted 2 ") for raw in documents)


def _collect(store: Store, lying: dict[bytes, str]) -> bool:
    for name, _ in store.list("mailboxes"):
        with contextlib.suppress(NotFound):  # taken in meanwhile
            lying[store.get(name)] = name
    return True


def _runs_whole(crucible: StoreOnlyDeployment) -> None:
    bundle = upload(crucible, packed(job=PROGRAM))
    job = crucible.submit({"command": ["{python}", "job.py"], "bundle": bundle})
    view = crucible.wait(job, 120)
    assert (view["status"], view["exit_code"], view["attempt"]) == ("completed", 0, 1)
    assert crucible.log(job).decode() == "".join(f"line {number}\n" for number in range(200))
    (artifact,) = crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]
    assert (artifact["path"], artifact["size"]) == ("result.bin", 256_000)
    series = crucible.get(f"/api/v1/jobs/{job}/metrics", series="loss")["series"]["loss"]
    assert [point[:2] for point in series["points"]] == [[1, 0.5]]


def test_a_stop_gets_through(crucible: StoreOnlyDeployment, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = crucible.submit(shell(f"echo $$ >> {pids}; exec sleep 1000"))
    until(lambda: pids.exists() and pids.read_text().strip(), 60, "the process")
    crucible.cancel(job)
    assert crucible.wait(job, 90)["status"] == "cancelled"
    (pid,) = map(int, pids.read_text().split())
    assert not alive(pid)


def test_a_job_ends_while_the_server_is_dead_and_nothing_is_lost(crucible: StoreOnlyDeployment, tmp_path: Path) -> None:
    gate, pids = tmp_path / "gate", tmp_path / "pids"
    job = crucible.submit(shell(f"echo $$ >> {pids}; echo before; {wait_for(gate)} && echo after && exit 7"))
    until(lambda: pids.exists() and pids.read_text().strip(), 60, "the process")
    crucible.kill()
    gate.touch()
    # Its runner leaves once everything is in the store: it needs nobody for that.
    until(lambda: list(crucible.home.glob("machines/*/attempts/*/done")), 90, "the runner to be done")
    crucible.start()
    view = crucible.wait(job, 90)
    assert (view["status"], view["exit_code"], view["attempt"]) == ("failed", 7, 1)
    assert crucible.log(job) == b"before\nafter\n"
    assert len(pids.read_text().split()) == 1


def test_the_mailbox_stays_small(crucible: StoreOnlyDeployment) -> None:
    for number in range(2):
        job = crucible.submit(python(f"print({number})"))
        assert crucible.wait(job, 90)["status"] == "completed"
    boxes = crucible.home / "store" / "mailboxes"

    def unread() -> list[str]:
        names = [str(path) for path in boxes.rglob("*") if path.is_file()]
        return [name for name in names if "/up/" in name or "/blobs/" in name]

    until(lambda: not unread(), 60, "what was taken in to be removed")


def test_a_host_that_was_killed_is_followed_by_another(crucible: StoreOnlyDeployment, tmp_path: Path) -> None:
    gate, pids = tmp_path / "gate", tmp_path / "pids"
    job = crucible.submit(shell(f"echo $$ >> {pids}; echo before; {wait_for(gate)} && echo after"))
    until(lambda: pids.exists() and pids.read_text().strip(), 60, "the process")
    (host,) = crucible.hosts()
    os.kill(host, signal.SIGKILL)
    until(lambda: [pid for pid in crucible.hosts() if pid != host], 60, "another host")
    gate.touch()
    view = crucible.wait(job, 90)
    assert (view["status"], view["attempt"]) == ("completed", 1)
    assert crucible.log(job) == b"before\nafter\n"
    assert len(pids.read_text().split()) == 1


def test_a_runner_that_was_killed_is_told_once(crucible: StoreOnlyDeployment, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = crucible.submit(shell(f"echo $$ >> {pids}; echo before; exec sleep 1000"))
    until(lambda: pids.exists() and pids.read_text().strip(), 60, "the process")
    until(lambda: crucible.log(job) == b"before\n", 60, "its output")
    (about,) = crucible.home.glob("machines/*/attempts/*/runner.json")
    os.kill(json.loads(about.read_text())["pid"], signal.SIGKILL)
    view = until(lambda: _first_attempt_over(crucible, job), 90, "the attempt to end")
    assert view["reason"] == "runner_lost"
    assert crucible.log(job, attempt=1) == b"before\n"
    assert not alive(int(pids.read_text().split()[0]))


def _first_attempt_over(crucible: StoreOnlyDeployment, job: str) -> View | None:
    attempt: View = crucible.job(job)["attempts"][0]
    return attempt if attempt["state"] == "ended" else None
