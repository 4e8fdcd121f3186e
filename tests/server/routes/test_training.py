"""The training routes: the documents' shapes over the same control plane."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.openapi_contract import document

from crucible.control.db import schema as t
from crucible.control.jobs.views import iso
from crucible.core.people.identity import OWNER
from crucible.core.views.training import RecordView
from crucible.server.routes.orchestrate import task_view
from crucible.wire.documents.messages import MessageKind
from crucible.wire.files.archive import unpack

CODE = "print('hello')"
BODY: dict[str, Any] = {"model_name": "resnet", "config": {"code": CODE, "epochs": 3}}
WISH: dict[str, Any] = {
    "tenant_id": "my-tenant",
    "training_params": {"epochs": 10, "batch_size": 16, "learning_rate": 0.001, "code": CODE},
    "model_params": {"architecture": "yolo", "input_size": 640},
    "custom_name": "my-training-job",
    "wandb_tags": ["tag1", "tag2"],
}


@pytest.mark.parametrize("path", ["/api/v1/training", "/api/v1/training/create"])
async def test_a_job_is_made_and_named(client: httpx2.AsyncClient, app: App, tmp_path: Path, path: str) -> None:
    answer = await client.post(path, json=BODY)
    assert answer.status_code == 201
    assert set(answer.json()) == {"job_id", "execution_id"}
    job = answer.json()["job_id"]
    assert job in answer.json()["execution_id"]
    assert answer.headers["Location"] == f"/api/v1/training/{job}"
    spec = (await app.harness.world(job)).job.spec
    assert spec.bundle is not None
    stored = await app.control.bundles.open(spec.bundle)
    unpack(io.BytesIO(app.harness.ports.store.get(stored.key)), tmp_path / "code", max_bytes=10_000, max_files=10)
    assert (tmp_path / "code" / "main.py").read_text() == CODE


async def test_the_same_key_gives_the_same_job_and_the_program_is_stored_once(
    client: httpx2.AsyncClient, app: App
) -> None:
    headers = {"Idempotency-Key": "k"}
    answers = [await client.post("/api/v1/training", json=BODY, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json() == answers[1].json()
    assert await app.harness.count(t.bundles) == 1


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"model_name": "resnet"}, "model plugin"),
        ({"config": {"code": CODE}}, "model_name"),
        ({"model_name": "", "config": {}}, "model_name"),
        ({"model_name": "a", "config": {"code": CODE, "executor": "locl"}}, "local"),
        ({"model_name": "a", "config": {"code": CODE, "script": "/x.py"}}, "code and script"),
        ({"model_name": "a", "config": {"script": "x.py"}}, "absolute path"),
        ({"model_name": "a", "config": {"epochs": -1, "code": CODE}}, "epochs"),
        ({"model_name": "a", "config": []}, "config"),
        ({"model_name": "a", "surprise": 1}, "surprise"),
        ([], "request"),
    ],
)
async def test_a_wrong_request_says_what_is_wrong(
    client: httpx2.AsyncClient, app: App, body: object, word: str
) -> None:
    answer = await client.post("/api/v1/training", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.text
    assert answer.json()["fix"]
    assert await app.harness.count(t.jobs) == 0


async def test_a_job_is_named_by_its_id_or_its_executions(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.harness.submit()
    for ref in (job, f"local-{job}-4711", job[-6:]):
        assert (await client.get(f"/api/v1/training/{ref}")).json()["job_id"] == job


async def failed(app: App, *steps: int) -> str:
    """A job that has saved checkpoints of these steps and failed."""
    job, runner = await app.harness.running()
    for step in steps:
        told = {"name": f"step_{step}", "form": "file", "size": 1, "sha256": f"{step:064x}", "metric": 1.0 / step}
        await runner.say(MessageKind.CHECKPOINT, **told, step=step)
    await runner.end(code=1)
    return job


async def started_from(app: App, job: str) -> str | None:
    """The name of the checkpoint that the newest attempt began with."""
    view = await app.control.jobs.view(OWNER, job)
    begun = view.attempts[-1].resume_from
    return begun.name if begun else None


async def test_a_job_goes_on_from_its_newest_checkpoint(client: httpx2.AsyncClient, app: App) -> None:
    job = await failed(app, 200, 100)
    answer = await client.post(f"/api/v1/training/{job}/resume")
    assert answer.status_code == 202
    newest, _ = (await app.control.checkpoints.list_checkpoints(OWNER, job)).items
    assert answer.json() == {"job_id": job, "execution_id": f"local-{job}", "resume_from": newest.id}
    assert await started_from(app, job) == "step_100"


async def test_a_checkpoint_and_an_executor_may_be_named(client: httpx2.AsyncClient, app: App) -> None:
    job = await failed(app, 200, 100)
    wish = {"resume_from": "best", "executor": "local"}
    assert (await client.post(f"/api/v1/training/{job}/resume", json=wish)).status_code == 202
    assert await started_from(app, job) == "step_200"


async def test_without_checkpoints_it_begins_again(client: httpx2.AsyncClient, app: App) -> None:
    job = await failed(app)
    assert (await client.post(f"/api/v1/training/{job}/resume")).json()["resume_from"] is None


async def test_a_job_is_cancelled(client: httpx2.AsyncClient, app: App) -> None:
    job, runner = await app.harness.running()
    answer = await client.post(f"/api/v1/training/{job}/cancel")
    assert (answer.status_code, answer.json()) == (202, {"job_id": job, "status": "running"})
    await runner.end(code=1)
    assert (await client.post(f"/api/v1/training/{job}/cancel")).status_code == 200


async def test_output_comes_from_an_offset_and_never_cuts_a_character(client: httpx2.AsyncClient, app: App) -> None:
    output = "zwölf\n".encode()
    job = await app.ended(output)
    path = f"/api/v1/training/{job}/logs"
    first = (await client.get(f"{path}?limit=3")).json()
    assert (first["logs"], first["next_offset"], first["complete"]) == ("zw", 2, False)
    rest = (await client.get(f"{path}?offset={first['next_offset']}")).json()
    assert (rest["logs"], rest["next_offset"], rest["complete"]) == ("ölf\n", len(output), True)
    assert rest["job_id"] == job


async def test_the_newest_metrics(client: httpx2.AsyncClient, app: App) -> None:
    job, runner = await app.harness.running()
    await runner.say(MessageKind.PROGRESS, epoch=2)
    await runner.say(MessageKind.POINTS, series={"loss": [[1, 0.5, 10.0], [2, 0.25, 20.0]]})
    answer = await client.get(f"/api/v1/training/{job}/metrics")
    assert answer.json() == {"job_id": job, "epoch": 2, "timestamp": 20.0, "metrics": {"loss": 0.25}}


async def test_before_the_first_metric_there_is_none(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.harness.submit()
    assert (await client.get(f"/api/v1/training/{job}/metrics")).json()["timestamp"] is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "zzzzzz", 404),
        ("POST", "zzzzzz/resume", 404),
        ("POST", "zzzzzz/cancel", 404),
        ("GET", "zzzzzz/logs", 404),
        ("GET", "zzzzzz/metrics", 404),
        ("GET", "last/logs?offset=-1", 422),
        ("GET", "last/logs?limit=0", 422),
        ("POST", "last/resume", 409),
        ("GET", "x" * 201, 422),
        ("PUT", "last", 405),
    ],
)
async def test_a_wrong_name_or_moment_is_a_problem(
    client: httpx2.AsyncClient, app: App, method: str, path: str, status: int
) -> None:
    await app.harness.submit()
    answer = await client.request(method, f"/api/v1/training/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_wrong_resumption_is_a_problem(client: httpx2.AsyncClient, app: App) -> None:
    path = f"/api/v1/training/{await failed(app)}/resume"
    assert (await client.post(path, json={"resume_from": "step-7"})).status_code == 404
    assert (await client.post(path, json={"surprise": 1})).status_code == 422
    assert (await client.post(path, json={"resume_from": ""})).status_code == 422


async def test_the_stream_is_that_of_the_job(app: App) -> None:
    job = await app.ended(b"hello\n")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for prefix in ("jobs", "training"):
        async with SocketClient(app.api, f"/api/v1/{prefix}/{job}/stream?after=99", headers) as socket:
            await socket.accepted()
            frames, code = await socket.frames_until_close()
            assert (code, frames[0]["text"], frames[-1]["stream"]) == (1000, "hello\n", "job")


async def test_a_tenants_task_is_made_in_its_project(client: httpx2.AsyncClient, app: App) -> None:
    await app.harness.running(cpus=4)
    answer = await client.post("/orchestrate", json=WISH)
    assert answer.status_code == 201
    task = answer.json()
    assert set(task) == {"task_id", "status", "created_at", "progress"}
    assert set(task["progress"]) == {"epoch", "total_epochs", "progress_percent", "message"}
    assert task["progress"]["message"].startswith("Waiting: waits for ")
    job = (await app.harness.world(task["task_id"])).job
    assert job.project == "my-tenant"
    assert (job.spec.name, job.spec.tags) == ("my-training-job", ("tag1", "tag2"))
    assert answer.headers["Location"] == f"/status?task_id={task['task_id']}"


async def test_a_task_tells_its_progress(client: httpx2.AsyncClient, app: App) -> None:
    job, runner = await app.harness.running()
    await runner.say(MessageKind.PROGRESS, epoch=5, total_epochs=10, fraction=0.5, message="Training epoch 5/10")
    task = (await client.get(f"/status?task_id={job}")).json()
    assert task == {
        "task_id": job,
        "status": "running",
        "created_at": iso((await app.harness.world(job)).job.created_at),
        "progress": {"epoch": 5, "total_epochs": 10, "progress_percent": 50, "message": "Training epoch 5/10"},
    }
    await runner.end()
    assert (await client.get(f"/status?task_id={job}")).json()["progress"]["progress_percent"] == 100


@pytest.mark.parametrize(("phase", "status"), [("pending", "queued"), ("running", "running")])
def test_a_task_without_progress_tells_its_phase(phase: str, status: str) -> None:
    record = RecordView(job_id="job-1", status=phase, phase=phase)
    task = task_view(record)
    assert (task.status, task.progress.message) == (status, phase.capitalize())


@pytest.mark.parametrize(
    ("path", "status"), [("/status", 422), ("/status?task_id=", 422), ("/status?task_id=zzzzzz", 404)]
)
async def test_a_task_that_is_not_there(client: httpx2.AsyncClient, path: str, status: int) -> None:
    assert (await client.get(path)).status_code == status


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": None},
        {"tenant_id": "a/b"},
        {"model_params": {}, "training_params": {"code": CODE}},
        {"training_params": {"epochs": 0}},
        {"training_params": {}},
        {"surprise": True},
    ],
)
async def test_a_wrong_task_is_a_problem(client: httpx2.AsyncClient, changes: dict[str, Any]) -> None:
    answer = await client.post("/orchestrate", json={**WISH, **changes})
    assert answer.status_code == 422
    assert answer.json()["fix"]


async def test_all_of_them_need_the_token(anonymous: httpx2.AsyncClient) -> None:
    for method, path in (("POST", "/api/v1/training"), ("POST", "/orchestrate"), ("GET", "/status?task_id=x")):
        assert (await anonymous.request(method, path)).status_code == 401


async def test_what_control_refuses_is_told(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/v1/training/last")).json()["fix"] == "`crucible jobs` lists them."


def test_they_are_described_with_their_problems() -> None:
    paths = document()["paths"]
    for path, method, problems in (
        ("/api/v1/training", "post", {"401", "403", "404", "409", "413", "422", "500"}),
        ("/api/v1/training/{job_id}/resume", "post", {"404", "409", "422"}),
        ("/orchestrate", "post", {"409", "413", "422"}),
        ("/status", "get", {"404", "422"}),
    ):
        assert problems <= set(paths[path][method]["responses"])
    operations = [item["operationId"] for path in paths.values() for item in path.values()]
    assert len(operations) == len(set(operations))
