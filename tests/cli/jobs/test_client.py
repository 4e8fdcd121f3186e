"""`crucible client`: training tasks of tenants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob
from tests.control.harness import new_id

from crucible.core.ids import Prefix

pytestmark = pytest.mark.enable_socket

TASK = {
    "tenant_id": "my-tenant",
    "training_params": {"command": ["python", "train.py"], "epochs": 10},
    "model_params": {"architecture": "yolo"},
    "custom_name": "my-training-job",
}
NOBODY = new_id(Prefix.JOB, 1)


def test_a_demo_is_submitted_watched_and_told(cli: Cli, real: RealServer) -> None:
    real.play()
    done = cli("client", "--url", real.url, "--action", "demo")
    assert done.code == 0
    assert f"Submitted {real.last.id}" in done.err
    assert "status    completed" in done.out
    ((_, task),) = real.sent
    assert (task["tenant_id"], task["model_params"]) == ("default", {"architecture": "demo"})
    compile(task["training_params"]["code"], "demo", "exec")


def test_a_task_is_submitted_from_a_file(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(json.dumps(TASK))
    done = cli("client", "--action", "submit", "--config", "task.json", "--config", "custom_name=other")
    assert (done.code, done.out) == (0, f"{real.last.id}\n")
    assert real.sent[0] == ("/orchestrate", {**TASK, "custom_name": "other", "wandb_tags": []})
    shown = cli("client", "--action", "submit", "--config", "task.json", "--json").json
    assert (shown["task_id"], set(shown["progress"])) == (
        real.last.id,
        {"epoch", "total_epochs", "progress_percent", "message"},
    )


def test_a_worker_goes_along(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("print(1)\n")
    cli("client", "--action", "submit", "--config", "tenant_id=me", "--worker", "worker.py")
    assert [real.sent[0][1]["training_params"]["bundle"]] == real.bundles


def test_how_a_task_stands(cli: Cli, real: RealServer) -> None:
    job = real.start()
    real.run(job.progress, fraction=0.5, epoch=5, total_epochs=10, message="Training epoch 5/10")
    done = cli("client", "--action", "status", "--task-id", job.id)
    assert done.code == 0
    for words in ("epoch     5/10", "progress  50%", "message   Training epoch 5/10"):
        assert words in done.out


@pytest.mark.parametrize(
    ("code", "exit_code", "words"), [(0, 0, "completed"), (3, 1, "The program ended with an error.")]
)
def test_waiting_tells_by_its_code_how_a_task_ended(
    cli: Cli, real: RealServer, code: int, exit_code: int, words: str
) -> None:
    job = real.start()

    async def play(_: RunningJob) -> None:
        await job.end(code)

    real.play_now(job, play)
    done = cli("client", "--action", "wait", "--task-id", job.id, "--timeout", "1m")
    assert (done.code, words in done.out) == (exit_code, True)


def test_waiting_may_end_before_the_task(cli: Cli, real: RealServer) -> None:
    assert cli("client", "--action", "wait", "--task-id", real.start().id, "--timeout", "0.01").code == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--action", "stats"), "'status'"),
        ((), "--action is missing"),
        (("--action", "status"), "--task-id is missing"),
        (("--action", "wait", "--task-id", NOBODY, "--timeout", "soon"), "soon"),
        (("--action", "submit"), "--config is missing"),
        (("--action", "submit", "--config", "nosuch.json"), "nosuch.json does not exist"),
        (("--action", "submit", "--config", "tenantid=me"), "'tenant_id'"),
        (("--action", "submit", "--config", "custom_name=x"), "tenant_id must be text"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    cli: Cli, real: RealServer, options: tuple[str, ...], words: str
) -> None:
    done = cli("client", *options)
    assert done.code == 2
    assert words in done.err
    assert not real.requests
