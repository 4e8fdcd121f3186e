"""The training routes: the documents' shapes over the same control plane."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.fake_control import JOB, FakeCheckpoint, FakeControl, FakeJob

from crucible.core.errors import BadInput
from crucible.server.api import describe
from crucible.wire.archive import unpack

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
async def test_a_job_is_made_and_named(
    http: httpx2.AsyncClient, control: FakeControl, tmp_path: Path, path: str
) -> None:
    answer = await http.post(path, json=BODY)
    assert answer.status_code == 201
    assert set(answer.json()) == {"job_id", "execution_id"}
    job = answer.json()["job_id"]
    assert job in answer.json()["execution_id"]
    assert answer.headers["Location"] == f"/api/v1/training/{job}"
    [(spec, _key)] = control.submitted
    assert spec.bundle is not None
    unpack(io.BytesIO(control.stored[spec.bundle]), tmp_path / "code", max_bytes=10_000, max_files=10)
    assert (tmp_path / "code" / "main.py").read_text() == CODE


async def test_the_same_key_gives_the_same_job_and_the_program_is_stored_once(
    http: httpx2.AsyncClient, control: FakeControl
) -> None:
    headers = {"Idempotency-Key": "k"}
    answers = [await http.post("/api/v1/training", json=BODY, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json() == answers[1].json()
    assert len(control.stored) == 1


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
    http: httpx2.AsyncClient, control: FakeControl, body: object, word: str
) -> None:
    answer = await http.post("/api/v1/training", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.text
    assert answer.json()["fix"]
    assert control.submitted == []


async def test_a_job_is_named_by_its_id_or_its_executions(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(progress={"epoch": 2}))
    for ref in (JOB, f"local-{JOB}-4711", JOB[-6:]):
        assert (await http.get(f"/api/v1/training/{ref}")).json()["job_id"] == JOB


async def test_a_job_goes_on_from_its_newest_checkpoint(http: httpx2.AsyncClient, control: FakeControl) -> None:
    newest = FakeCheckpoint("ckp-00000000000000000000000002", "step_200")
    control.add(FakeJob(status="failed", checkpoints=[newest, FakeCheckpoint()]))
    answer = await http.post(f"/api/v1/training/{JOB}/resume")
    assert answer.status_code == 202
    assert answer.json() == {"job_id": JOB, "execution_id": f"local-{JOB}", "resume_from": newest.id}
    assert control.asked == [{"checkpoint": newest.id, "backend": None}]


async def test_a_checkpoint_and_an_executor_may_be_named(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(status="failed", checkpoints=[FakeCheckpoint(best=True)]))
    wish = {"resume_from": "best", "executor": "local"}
    assert (await http.post(f"/api/v1/training/{JOB}/resume", json=wish)).status_code == 202
    assert control.asked == [{"checkpoint": "best", "backend": "local"}]


async def test_without_checkpoints_it_begins_anew(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(status="failed"))
    assert (await http.post(f"/api/v1/training/{JOB}/resume")).json()["resume_from"] is None


async def test_a_job_is_cancelled(http: httpx2.AsyncClient, control: FakeControl) -> None:
    job = control.add(FakeJob())
    answer = await http.post(f"/api/v1/training/{JOB}/cancel")
    assert (answer.status_code, answer.json()) == (202, {"job_id": JOB, "status": "running"})
    job.status = "cancelled"
    assert (await http.post(f"/api/v1/training/{JOB}/cancel")).status_code == 200


async def test_output_comes_from_an_offset_and_never_cuts_a_character(
    http: httpx2.AsyncClient, control: FakeControl
) -> None:
    output = "zwölf\n".encode()
    control.add(FakeJob(outputs=[output], ended=1))
    path = f"/api/v1/training/{JOB}/logs"
    first = (await http.get(f"{path}?limit=3")).json()
    assert (first["logs"], first["next_offset"], first["complete"]) == ("zw", 2, False)
    rest = (await http.get(f"{path}?offset={first['next_offset']}")).json()
    assert (rest["logs"], rest["next_offset"], rest["complete"]) == ("ölf\n", len(output), True)
    assert rest["job_id"] == JOB


async def test_the_newest_metrics(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(progress={"epoch": 2}, reported={"loss": [(1, 0.5, 10.0), (2, 0.25, 20.0)]}))
    answer = await http.get(f"/api/v1/training/{JOB}/metrics")
    assert answer.json() == {"job_id": JOB, "epoch": 2, "timestamp": 20.0, "metrics": {"loss": 0.25}}


async def test_before_the_first_metric_there_is_none(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob())
    assert (await http.get(f"/api/v1/training/{JOB}/metrics")).json()["timestamp"] is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "zzzzzz", 404),
        ("POST", "zzzzzz/resume", 404),
        ("POST", "zzzzzz/cancel", 404),
        ("GET", "zzzzzz/logs", 404),
        ("GET", "zzzzzz/metrics", 404),
        ("GET", f"{JOB}/logs?offset=-1", 422),
        ("GET", f"{JOB}/logs?limit=0", 422),
        ("POST", f"{JOB}/resume", 409),
        ("GET", "x" * 201, 422),
        ("PUT", JOB, 405),
    ],
)
async def test_a_wrong_name_or_moment_is_a_problem(
    http: httpx2.AsyncClient, control: FakeControl, method: str, path: str, status: int
) -> None:
    control.add(FakeJob(outputs=[b"x"]))
    answer = await http.request(method, f"/api/v1/training/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_wrong_resumption_is_a_problem(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.add(FakeJob(status="failed"))
    path = f"/api/v1/training/{JOB}/resume"
    assert (await http.post(path, json={"resume_from": "step-7"})).status_code == 404
    assert (await http.post(path, json={"surprise": 1})).status_code == 422
    assert (await http.post(path, json={"resume_from": ""})).status_code == 422


async def test_the_stream_is_that_of_the_job(api: FastAPI, control: FakeControl) -> None:
    control.add(FakeJob(status="completed", outputs=[b"hello\n"], ended=1))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for prefix in ("jobs", "training"):
        async with SocketClient(api, f"/api/v1/{prefix}/{JOB}/stream", headers) as socket:
            await socket.accepted()
            frames, code = await socket.frames_until_close()
            assert (code, frames[0]["text"], frames[-1]["stream"]) == (1000, "hello\n", "job")


async def test_a_tenants_task_is_made_in_its_project(http: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await http.post("/orchestrate", json=WISH)
    assert answer.status_code == 201
    task = answer.json()
    assert set(task) == {"task_id", "status", "created_at", "progress"}
    assert set(task["progress"]) == {"epoch", "total_epochs", "progress_percent", "message"}
    assert task["progress"]["message"] == "Waiting: for its turn"
    assert control.people.projects == ["my-tenant"]
    [(spec, _key)] = control.submitted
    assert (spec.name, spec.tags) == ("my-training-job", ("tag1", "tag2"))
    assert answer.headers["Location"] == f"/status?task_id={task['task_id']}"


async def test_a_task_tells_its_progress(http: httpx2.AsyncClient, control: FakeControl) -> None:
    told = {"epoch": 5, "total_epochs": 10, "percent": 50.0, "message": "Training epoch 5/10"}
    job = control.add(FakeJob(progress=told))
    task = (await http.get(f"/status?task_id={JOB}")).json()
    assert task == {
        "task_id": JOB,
        "status": "running",
        "created_at": "2026-11-15T10:00:00.000Z",
        "progress": {"epoch": 5, "total_epochs": 10, "progress_percent": 50, "message": "Training epoch 5/10"},
    }
    job.status = "completed"
    assert (await http.get(f"/status?task_id={JOB}")).json()["progress"]["progress_percent"] == 100
    job.status, job.phase, job.progress = "pending", "pending", None
    task = (await http.get(f"/status?task_id={JOB}")).json()
    assert (task["status"], task["progress"]["message"]) == ("queued", "Pending")


@pytest.mark.parametrize(
    ("path", "status"), [("/status", 422), ("/status?task_id=", 422), ("/status?task_id=zzzzzz", 404)]
)
async def test_a_task_that_is_not_there(http: httpx2.AsyncClient, path: str, status: int) -> None:
    assert (await http.get(path)).status_code == status


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
async def test_a_wrong_task_is_a_problem(http: httpx2.AsyncClient, changes: dict[str, Any]) -> None:
    answer = await http.post("/orchestrate", json={**WISH, **changes})
    assert answer.status_code == 422
    assert answer.json()["fix"]


async def test_all_of_them_need_the_token(anonymous: httpx2.AsyncClient) -> None:
    for method, path in (("POST", "/api/v1/training"), ("POST", "/orchestrate"), ("GET", "/status?task_id=x")):
        assert (await anonymous.request(method, path)).status_code == 401


async def test_what_control_refuses_is_told(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.breaks = BadInput("No.", fix="Do otherwise.")
    assert (await http.get(f"/api/v1/training/{JOB}")).json()["fix"] == "Do otherwise."


def test_they_are_described_with_their_problems(api: FastAPI) -> None:
    paths = describe(api)["paths"]
    for path, method, problems in (
        ("/api/v1/training", "post", {"401", "403", "404", "409", "413", "422", "500"}),
        ("/api/v1/training/{job_id}/resume", "post", {"404", "409", "422"}),
        ("/orchestrate", "post", {"409", "413", "422"}),
        ("/status", "get", {"404", "422"}),
    ):
        assert problems <= set(paths[path][method]["responses"])
    operations = [item["operationId"] for path in paths.values() for item in path.values()]
    assert len(operations) == len(set(operations))
