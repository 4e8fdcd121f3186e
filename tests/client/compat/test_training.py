from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

from crucible import SyncMLPlatform
from crucible.client.compat import TrainingClient, TrainingJobRequest
from crucible.core.errors import BadInput, NotFound

pytestmark = pytest.mark.enable_socket

REQUEST = TrainingJobRequest(
    tenant_id="my-tenant",
    training_params={"epochs": 10, "batch_size": 16},
    model_params={"architecture": "yolo"},
    custom_name="my-training-job",
    wandb_tags=["tag1", "tag2"],
)


@pytest.fixture
def client(blocking: SyncMLPlatform, tmp_path: Path) -> TrainingClient:
    (tmp_path / "worker.py").write_text("print(1)\n")
    return TrainingClient("worker.py", blocking, requirements=None)


def test_a_request_becomes_a_job_of_the_worker(client: TrainingClient, server: FakeServer) -> None:
    assert client.submit(REQUEST) == JOB
    (spec,) = server.specs
    assert (spec["name"], spec["tags"]) == ("my-training-job", ["tenant:my-tenant", "tag1", "tag2"])
    assert json.loads(spec["env"].pop("TRAINING_PARAMS")) == {"epochs": 10, "batch_size": 16}
    assert json.loads(spec["env"].pop("MODEL_PARAMS")) == {"architecture": "yolo"}
    assert spec["env"] == {"TENANT_ID": "my-tenant", "WANDB_NAME": "my-training-job", "WANDB_TAGS": "tag1,tag2"}


def test_its_status_is_the_documents_answer(client: TrainingClient, server: FakeServer) -> None:
    told = {"fraction": 0.5, "epoch": 5, "total_epochs": 10, "message": "Training epoch 5/10"}
    server.jobs[JOB] = job_view(progress=told)
    found = client.status(JOB)
    assert (found.task_id, found.status, found.created_at) == (JOB, "running", "2026-11-15T10:00:00.000Z")
    assert found.progress == {
        "epoch": 5,
        "total_epochs": 10,
        "progress_percent": 50.0,
        "message": "Training epoch 5/10",
    }
    assert found.error is None


def test_watching_to_the_end(client: TrainingClient, server: FakeServer) -> None:
    server.jobs[JOB], server.ends_as = job_view(), failed(3)
    last = list(client.monitor(JOB))[-1]
    assert (last.status, last.error) == ("failed", "The code failed.")
    server.jobs[JOB], server.ends_as = job_view(), completed()
    assert client.wait(JOB, 30).status == "completed"
    assert client.job(JOB).id == JOB


def test_cancelling(client: TrainingClient, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    client.cancel(JOB)
    assert client.wait(JOB, 30).status == "cancelled"
    with pytest.raises(NotFound):
        client.status("nosuch")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"tenant_id": ""}, "tenant_id is a text"),
        ({"tenant_id": 3}, "tenant_id is a text"),
        ({"custom_name": ""}, "custom_name is a text"),
        ({"training_params": []}, "training_params is a table"),
        ({"model_params": {"x": object()}}, "model_params cannot travel"),
        ({"wandb_tags": "tag"}, "wandb_tags is a list"),
        ({"wandb_tags": [3]}, "wandb_tags is a list"),
        ({"wandb_tags": ["a,b"]}, "no commas"),
    ],
)
def test_a_request_that_is_none(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TrainingJobRequest(**{"tenant_id": "me", **said})


def test_only_requests_are_submitted(client: TrainingClient) -> None:
    with pytest.raises(BadInput, match="takes a TrainingJobRequest"):
        client.submit({"tenant_id": "me"})  # type: ignore[arg-type]
