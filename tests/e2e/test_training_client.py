"""Training tasks of tenants on a real server: the client, its asynchronous twin, and `crucible client`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.terminal import Terminal
from tests.plugin_packages import COUNTER, install, make_python

from crucible.client.compat import AsyncTrainingClient, TrainingClient, TrainingJobRequest
from crucible.core.errors import BadInput, NotFound, TimedOut

LONG = 90.0

WORKER = """\
import helper, json, os
told = json.loads(os.environ["CONFIG"])
for epoch in range(1, told["epochs"] + 1):
    print(f"epoch {epoch}/{told['epochs']}", flush=True)
print(helper.WORD, told["model_params"], os.environ["TENANT_ID"], os.environ["WANDB_TAGS"])
"""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal whose server offers the models of one Python."""
    folder = tmp_path_factory.mktemp("terminal")
    install(make_python(folder / "venv"), "counting", COUNTER, {"counter": "counting:Counter"})
    with Terminal(folder, CRUCIBLE_MODELS_PYTHON=str(folder / "venv")) as found:
        found.crucible.start()
        yield found


@pytest.fixture
def server(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(terminal.folder)
    monkeypatch.setenv("CRUCIBLE_TOKEN", terminal.crucible.token)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return str(terminal.crucible.discovery["url"])


def request(**training: object) -> TrainingJobRequest:
    return TrainingJobRequest(
        tenant_id="my-tenant",
        training_params=training,
        model_params={"architecture": "counter"},
        custom_name="my-training-job",
        wandb_tags=["tag1", "tag2"],
    )


def test_a_worker_is_sent_and_watched(terminal: Terminal, server: str) -> None:
    terminal.write(worker=WORKER, helper="WORD = 'helped'\n")
    with TrainingClient(server, worker="worker.py") as client:
        task = client.submit(request(epochs=2))
        ended = client.wait(task, LONG)
        assert (ended.status, ended.progress.epoch, ended.progress.total_epochs) == ("completed", 2, 2)
        assert ended.progress.progress_percent == 100
        job = client.job(task)
        assert list(job.logs())[-1] == "helped {'architecture': 'counter'} my-tenant tag1,tag2"
        assert (job.name, job.view.project, job.view.tags) == ("my-training-job", "my-tenant", ("tag1", "tag2"))


async def test_a_model_of_the_servers_is_trained_by_its_name(server: str) -> None:
    async with AsyncTrainingClient(server) as client:
        task = await client.submit(request(epochs=2, rate=0.25))
        seen = [status async for status in client.monitor(task)]
        assert seen[-1].status == "completed"
        progress = (await client.status(task)).progress
        assert (progress.epoch, progress.total_epochs) == (2, 2)
        with pytest.raises(BadInput, match="did you mean 'epochs'"):
            await client.submit(request(epoch=2))
        with pytest.raises(NotFound):
            await client.status("nosuch")


def test_a_task_is_given_up_waiting_for_and_cancelled(server: str) -> None:
    with TrainingClient(server) as client:
        task = client.submit(request(code="import time\ntime.sleep(600)"))
        with pytest.raises(TimedOut):
            client.wait(task, 0.2)
        client.cancel(task)
        assert client.wait(task, LONG).status == "cancelled"


def test_the_command_line(terminal: Terminal, server: str, tmp_path: Path) -> None:
    client = ("client", "--url", server)
    env = {"CRUCIBLE_TOKEN": os.environ["CRUCIBLE_TOKEN"]}
    done = terminal.run(*client, "--action", "demo", env=env)
    assert done.returncode == 0, done.stderr
    assert "epoch     5/5" in done.stdout
    (tmp_path / "task.json").write_text(json.dumps(request(epochs=2).body()))
    task = terminal.ok(*client, "--action", "submit", "--config", str(tmp_path / "task.json"), env=env).strip()
    ended = terminal.json(*client, "--action", "wait", "--task-id", task, "--timeout", "1m", env=env)
    assert (ended["status"], ended["progress"]["progress_percent"]) == ("completed", 100)
    assert terminal.json(*client, "--action", "status", "--task-id", task, env=env) == ended
