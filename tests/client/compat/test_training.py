from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.client.real_server import RealServer, RunningJob

from crucible import MLPlatform, SyncMLPlatform
from crucible.client.compat import AsyncTrainingClient, TrainingClient, TrainingJobRequest
from crucible.control.db import schema as t
from crucible.core.errors import BadInput, NotFound, TimedOut, UnknownName
from crucible.storage.layout import bundle_key
from crucible.wire.files.archive import unpack

pytestmark = pytest.mark.enable_socket

REQUEST = TrainingJobRequest(
    tenant_id="my-tenant",
    training_params={"command": ["python", "train.py"], "epochs": 10, "batch_size": 16},
    model_params={"architecture": "yolo"},
    custom_name="my-training-job",
    wandb_tags=["tag1", "tag2"],
)
HALFWAY = {"fraction": 0.5, "epoch": 5, "total_epochs": 10, "message": "Training epoch 5/10"}


@pytest.fixture
def client(blocking: SyncMLPlatform) -> TrainingClient:
    return TrainingClient(platform=blocking)


@pytest.fixture
def async_client(platform: MLPlatform) -> AsyncTrainingClient:
    return AsyncTrainingClient(platform=platform)


def test_a_request_goes_to_orchestrate_once(client: TrainingClient, real: RealServer) -> None:
    real.faults.refuse("/orchestrate")
    real.faults.cut("/orchestrate")
    assert client.submit(REQUEST) == real.last.id
    body = {
        "tenant_id": "my-tenant",
        "training_params": {"command": ["python", "train.py"], "epochs": 10, "batch_size": 16},
        "model_params": {"architecture": "yolo"},
        "custom_name": "my-training-job",
        "wandb_tags": ["tag1", "tag2"],
    }
    assert real.sent == [("/orchestrate", body)] * 2
    assert [path for _, path in real.requests] == ["/orchestrate"] * 3
    assert len({*real.keys}) == 1
    assert len(real.keys[0]) == 32
    assert real.run(real.harness.count, t.jobs) == 1


def test_a_worker_is_sent_with_what_it_imports_and_its_python(
    blocking: SyncMLPlatform, real: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("WORD = 1\n")
    (tmp_path / "worker.py").write_text("import helper\nprint(helper.WORD)\n")
    TrainingClient(worker="worker.py", platform=blocking).submit(REQUEST)
    (sha,) = real.bundles
    archive = real.harness.ports.store.get(bundle_key(sha))
    unpack(io.BytesIO(archive), tmp_path / "sent", max_bytes=10_000, max_files=10)
    assert {path.name for path in (tmp_path / "sent").iterdir()} == {"worker.py", "helper.py"}
    params = real.sent[-1][1]["training_params"]
    assert (params["command"], params["bundle"], params["epochs"]) == (["{python}", "worker.py"], sha, 10)
    assert params["environment"]["interpreter"]
    assert REQUEST.training_params == {"command": ["python", "train.py"], "epochs": 10, "batch_size": 16}


def test_a_worker_that_is_not_there(blocking: SyncMLPlatform, real: RealServer) -> None:
    with pytest.raises(BadInput, match=r"nosuch\.py does not exist"):
        TrainingClient(worker="nosuch.py", platform=blocking).submit(REQUEST)
    assert not real.sent


def halfway(real: RealServer) -> RunningJob:
    job = real.start()
    real.run(job.progress, **HALFWAY)
    return job


def test_its_status_is_the_documents_answer(client: TrainingClient, real: RealServer) -> None:
    job = halfway(real)
    found = client.status(job.id)
    assert not found.ended
    assert found.as_json() == {
        "task_id": job.id,
        "status": "running",
        "created_at": "2023-11-14T22:13:20.000Z",
        "progress": {"epoch": 5, "total_epochs": 10, "progress_percent": 50, "message": "Training epoch 5/10"},
    }


def test_watching_to_the_end(client: TrainingClient, real: RealServer) -> None:
    job = real.start()
    statuses = client.monitor(job.id)
    assert next(statuses).status == "running"
    real.run(job.end, 3)
    *others, last = statuses
    assert last not in others
    assert (last.status, last.ended) == ("failed", True)
    assert last.progress.message == "The program ended with an error."
    job = real.start()
    real.play_now(job, RunningJob.end)
    assert client.wait(job.id, 30).status == "completed"
    assert client.job(job.id).id == job.id


def test_a_task_that_has_not_ended_in_time(client: TrainingClient, real: RealServer) -> None:
    job = real.start().id
    with pytest.raises(TimedOut, match=r"has not ended within 0\.01 seconds"):
        client.wait(job, 0.01)
    with pytest.raises(BadInput, match="timeout"):
        client.wait(job, -1)


def test_cancelling(client: TrainingClient, real: RealServer) -> None:
    job = real.start().id
    client.cancel(job)
    assert client.wait(job, 30).status == "cancelled"
    with pytest.raises(NotFound):
        client.status("nosuch")


async def test_the_same_beside_an_event_loop(async_client: AsyncTrainingClient, real: RealServer) -> None:
    submitted = await async_client.submit(REQUEST)
    assert submitted == real.last.id
    job = halfway(real)
    assert (await async_client.status(job.id)).progress.epoch == 5
    real.play_now(job, RunningJob.end)
    assert [status.status async for status in async_client.monitor(job.id)][-1] == "completed"
    assert (await async_client.wait(job.id, 30)).ended
    other = real.start().id
    await async_client.cancel(other)
    assert (await async_client.status(other)).status == "cancelled"
    with pytest.raises(BadInput, match="takes a TrainingJobRequest"):
        await async_client.submit({"tenant_id": "me"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"tenant_id": ""}, "tenant_id must have 1 to 63 of a-z"),
        ({"tenant_id": 3}, "tenant_id must be text"),
        ({"custom_name": ""}, "custom_name must not be empty"),
        ({"training_params": []}, "training_params must be a table"),
        ({"model_params": {"x": object()}}, "model_params cannot be sent as JSON"),
        ({"model_params": {"x": float("nan")}}, "model_params cannot be sent as JSON"),
        ({"wandb_tags": "tag"}, "wandb_tags must be a list"),
        ({"wandb_tags": [3]}, "wandb_tags must be text"),
        ({"wandb_tags": ["a,b"]}, "no commas"),
    ],
)
def test_a_request_that_is_none(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TrainingJobRequest(**{"tenant_id": "me", **said})


def test_a_request_from_a_table() -> None:
    assert TrainingJobRequest.from_mapping(REQUEST.body()) == REQUEST
    with pytest.raises(UnknownName, match="'tenant_id'"):
        TrainingJobRequest.from_mapping({"tenantid": "me"})
    with pytest.raises(BadInput, match="tenant_id must be text"):
        TrainingJobRequest.from_mapping({"training_params": {}})


def test_only_requests_are_submitted(client: TrainingClient) -> None:
    with pytest.raises(BadInput, match="takes a TrainingJobRequest"):
        client.submit({"tenant_id": "me"})  # type: ignore[arg-type]
