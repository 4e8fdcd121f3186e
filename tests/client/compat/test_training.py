from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

from crucible import MLPlatform, SyncMLPlatform
from crucible.client.compat import AsyncTrainingClient, TrainingClient, TrainingJobRequest
from crucible.core.errors import BadInput, NotFound, TimedOut, UnknownName
from crucible.wire.files.archive import unpack

pytestmark = pytest.mark.enable_socket

REQUEST = TrainingJobRequest(
    tenant_id="my-tenant",
    training_params={"epochs": 10, "batch_size": 16},
    model_params={"architecture": "yolo"},
    custom_name="my-training-job",
    wandb_tags=["tag1", "tag2"],
)
HALFWAY = {"fraction": 0.5, "epoch": 5, "total_epochs": 10, "message": "Training epoch 5/10"}


@pytest.fixture
def client(blocking: SyncMLPlatform) -> TrainingClient:
    return TrainingClient(platform=blocking)


@pytest.fixture
def beside(platform: MLPlatform) -> AsyncTrainingClient:
    return AsyncTrainingClient(platform=platform)


def test_a_request_goes_to_orchestrate_once(client: TrainingClient, server: FakeServer) -> None:
    server.busy_answers = 1
    assert client.submit(REQUEST) == JOB
    assert server.specs == [
        {
            "tenant_id": "my-tenant",
            "training_params": {"epochs": 10, "batch_size": 16},
            "model_params": {"architecture": "yolo"},
            "custom_name": "my-training-job",
            "wandb_tags": ["tag1", "tag2"],
        }
    ]
    assert [path for _, path in server.requests] == ["/orchestrate", "/orchestrate"]
    assert len(server.keys[0]) == 32


def test_a_worker_is_sent_with_what_it_imports_and_its_python(
    blocking: SyncMLPlatform, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("WORD = 1\n")
    (tmp_path / "worker.py").write_text("import helper\nprint(helper.WORD)\n")
    TrainingClient(worker="worker.py", platform=blocking).submit(REQUEST)
    ((sha, archive),) = server.bundles.items()
    unpack(io.BytesIO(archive), tmp_path / "sent", max_bytes=10_000, max_files=10)
    assert {path.name for path in (tmp_path / "sent").iterdir()} == {"worker.py", "helper.py"}
    params = server.specs[0]["training_params"]
    assert (params["command"], params["bundle"], params["epochs"]) == (["{python}", "worker.py"], sha, 10)
    assert params["environment"]["interpreter"]
    assert REQUEST.training_params == {"epochs": 10, "batch_size": 16}


def test_a_worker_that_is_not_there(blocking: SyncMLPlatform, server: FakeServer) -> None:
    with pytest.raises(BadInput, match=r"nosuch\.py does not exist"):
        TrainingClient(worker="nosuch.py", platform=blocking).submit(REQUEST)
    assert not server.specs


def test_its_status_is_the_documents_answer(client: TrainingClient, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(progress=HALFWAY)
    found = client.status(JOB)
    assert not found.ended
    assert found.as_json() == {
        "task_id": JOB,
        "status": "running",
        "created_at": "2026-11-15T10:00:00.000Z",
        "progress": {"epoch": 5, "total_epochs": 10, "progress_percent": 50, "message": "Training epoch 5/10"},
    }


def test_watching_to_the_end(client: TrainingClient, server: FakeServer) -> None:
    server.jobs[JOB], server.ends_as = job_view(), failed(3)
    *others, last = client.monitor(JOB)
    assert last not in others
    assert (last.status, last.ended, last.progress.message) == ("failed", True, "The code failed.")
    server.jobs[JOB], server.ends_as = job_view(), completed()
    assert client.wait(JOB, 30).status == "completed"
    assert client.job(JOB).id == JOB


def test_a_task_that_has_not_ended_in_time(client: TrainingClient, server: FakeServer) -> None:
    server.jobs[JOB], server.acts = job_view(), [([], 0)]
    with pytest.raises(TimedOut, match=r"has not ended within 0\.01 seconds"):
        client.wait(JOB, 0.01)
    with pytest.raises(BadInput, match="timeout"):
        client.wait(JOB, -1)


def test_cancelling(client: TrainingClient, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    client.cancel(JOB)
    assert client.wait(JOB, 30).status == "cancelled"
    with pytest.raises(NotFound):
        client.status("nosuch")


async def test_the_same_beside_an_event_loop(beside: AsyncTrainingClient, server: FakeServer) -> None:
    assert await beside.submit(REQUEST) == JOB
    server.jobs[JOB], server.ends_as = job_view(progress=HALFWAY), completed()
    assert (await beside.status(JOB)).progress.epoch == 5
    assert [status.status async for status in beside.monitor(JOB)][-1] == "completed"
    assert (await beside.wait(JOB, 30)).ended
    server.jobs[JOB] = job_view()
    await beside.cancel(JOB)
    assert (await beside.status(JOB)).status == "cancelled"
    with pytest.raises(BadInput, match="takes a TrainingJobRequest"):
        await beside.submit({"tenant_id": "me"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"tenant_id": ""}, "tenant_id is a text"),
        ({"tenant_id": 3}, "tenant_id is a text"),
        ({"custom_name": ""}, "custom_name is a text"),
        ({"training_params": []}, "training_params is a table"),
        ({"model_params": {"x": object()}}, "model_params cannot travel"),
        ({"model_params": {"x": float("nan")}}, "model_params cannot travel"),
        ({"wandb_tags": "tag"}, "wandb_tags is a list"),
        ({"wandb_tags": [3]}, "wandb_tags is a list"),
        ({"wandb_tags": ["a,b"]}, "no commas"),
    ],
)
def test_a_request_that_is_none(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TrainingJobRequest(**{"tenant_id": "me", **said})


def test_a_request_from_a_table() -> None:
    assert TrainingJobRequest.of(REQUEST.body()) == REQUEST
    with pytest.raises(UnknownName, match="'tenant_id'"):
        TrainingJobRequest.of({"tenantid": "me"})
    with pytest.raises(BadInput, match="tenant_id is a text"):
        TrainingJobRequest.of({"training_params": {}})


def test_only_requests_are_submitted(client: TrainingClient) -> None:
    with pytest.raises(BadInput, match="takes a TrainingJobRequest"):
        client.submit({"tenant_id": "me"})  # type: ignore[arg-type]
