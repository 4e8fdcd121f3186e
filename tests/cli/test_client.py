"""`crucible client`: training tasks of tenants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

pytestmark = pytest.mark.enable_socket

TASK = {
    "tenant_id": "my-tenant",
    "training_params": {"epochs": 10},
    "model_params": {"architecture": "yolo"},
    "custom_name": "my-training-job",
}


def test_a_demo_is_submitted_watched_and_told(cli: Cli, server: FakeServer) -> None:
    done = cli("client", "--url", server.url, "--action", "demo")
    assert done.code == 0
    assert f"Submitted {JOB}" in done.err
    assert "status    completed" in done.out
    (task,) = server.specs
    assert (task["tenant_id"], task["model_params"]) == ("default", {"architecture": "demo"})
    compile(task["training_params"]["code"], "demo", "exec")


def test_a_task_is_submitted_from_a_file(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(json.dumps(TASK))
    done = cli("client", "--action", "submit", "--config", "task.json", "--config", "custom_name=other")
    assert (done.code, done.out) == (0, f"{JOB}\n")
    assert server.specs[0] == {**TASK, "custom_name": "other", "wandb_tags": []}
    shown = cli("client", "--action", "submit", "--config", "task.json", "--json").json
    assert (shown["task_id"], set(shown["progress"])) == (
        JOB,
        {"epoch", "total_epochs", "progress_percent", "message"},
    )


def test_a_worker_goes_along(cli: Cli, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("print(1)\n")
    cli("client", "--action", "submit", "--config", "tenant_id=me", "--worker", "worker.py")
    assert server.specs[0]["training_params"]["bundle"] in server.bundles


def test_how_a_task_stands(cli: Cli, server: FakeServer) -> None:
    told = {"fraction": 0.5, "epoch": 5, "total_epochs": 10, "message": "Training epoch 5/10"}
    server.jobs[JOB] = job_view(progress=told)
    done = cli("client", "--action", "status", "--task-id", JOB)
    assert done.code == 0
    for words in ("epoch     5/10", "progress  50%", "message   Training epoch 5/10"):
        assert words in done.out


def test_waiting_tells_by_its_code_how_a_task_ended(cli: Cli, server: FakeServer) -> None:
    wait = ("client", "--action", "wait", "--task-id", JOB)
    server.jobs[JOB], server.ends_as = job_view(), completed()
    assert cli(*wait, "--json").json["status"] == "completed"
    server.jobs[JOB], server.ends_as = job_view(), failed(3)
    done = cli(*wait, "--timeout", "1m")
    assert done.code == 1
    assert "The code failed." in done.out
    server.jobs[JOB], server.acts = job_view(), [([], 0)]
    assert cli(*wait, "--timeout", "0.01").code == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--action", "stats"), "'status'"),
        ((), "--action is missing"),
        (("--action", "status"), "--task-id is missing"),
        (("--action", "wait", "--task-id", JOB, "--timeout", "soon"), "soon"),
        (("--action", "submit"), "--config is missing"),
        (("--action", "submit", "--config", "nosuch.json"), "nosuch.json does not exist"),
        (("--action", "submit", "--config", "tenantid=me"), "'tenant_id'"),
        (("--action", "submit", "--config", "custom_name=x"), "tenant_id is a text"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    cli: Cli, server: FakeServer, options: tuple[str, ...], words: str
) -> None:
    done = cli("client", *options)
    assert done.code == 2
    assert words in done.err
    assert not server.requests
