"""A tenant's training request, and the clients that submit and watch it over `/orchestrate`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crucible.client.request.job_request import validation_error
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.submission import pack_bundle, upload_bundle
from crucible.client.request.submit_options import read_keywords
from crucible.client.sdk.blocking import SyncJob, SyncMLPlatform
from crucible.client.sdk.platform import MLPlatform
from crucible.client.sdk.status import JobStatus
from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.training import Orchestration
from crucible.core.views.training import TaskView

TrainingStatus = TaskView


@dataclass(frozen=True)
class TrainingJobRequest:
    """What a tenant asks to train. Raises BadInput for what `Orchestration` does not allow or JSON cannot hold."""

    tenant_id: str
    training_params: Mapping[str, object] = field(default_factory=dict)
    model_params: Mapping[str, object] = field(default_factory=dict)
    custom_name: str | None = None
    wandb_tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        params = {name: _json_table(name, getattr(self, name)) for name in ("training_params", "model_params")}
        try:
            request = Orchestration.model_validate({**vars(self), **params})
        except ValidationError as error:
            raise validation_error(error) from error
        if any("," in tag or not tag.strip() for tag in request.wandb_tags):
            raise BadInput(
                "wandb_tags must not be empty and have no commas.",
                why="The program finds them as $WANDB_TAGS, separated by commas.",
                fix="Change the tag, or leave it out.",
                field="wandb_tags",
            )
        object.__setattr__(self, "wandb_tags", request.wandb_tags)

    @classmethod
    def from_mapping(cls, table: Mapping[str, object]) -> TrainingJobRequest:
        """Return the request of a table such as a file holds. Raises BadInput, and UnknownName for an unknown field."""
        names = [item.name for item in fields(cls)]
        for name in table:
            if name not in names:
                raise UnknownName("field of a training task", name, names)
        values: dict[str, Any] = {"tenant_id": None, **table}
        return cls(**values)

    def body(self) -> dict[str, object]:
        """Return the body that `/orchestrate` takes."""
        return {
            "tenant_id": self.tenant_id,
            "training_params": dict(self.training_params),
            "model_params": dict(self.model_params),
            "custom_name": self.custom_name,
            "wandb_tags": list(self.wandb_tags),
        }


class TrainingClient:
    """Submits training tasks and follows them. Every method blocks.

    `server` and `token` are as in `SyncMLPlatform`. `worker` is the program that trains: a script, folder or notebook
    on this computer. Without one, the request has it (`code` of its training_params) or names a model plugin of the
    server.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        worker: str | Path | None = None,
        platform: SyncMLPlatform | None = None,
    ) -> None:
        self._platform = platform or SyncMLPlatform(server, token=token)
        self._worker = worker

    def submit(self, request: TrainingJobRequest) -> str:
        """Submit the request and return the id of the task, which is also the id of its job."""
        body = check_request(request).body()
        if self._worker is not None:
            body["training_params"] = {**request.training_params, **_program(self._platform, self._worker)}
        return self._platform.api.training.orchestrate(body).task_id

    def status(self, task_id: str) -> TaskView:
        return self._platform.api.training.status(task_id)

    def monitor(self, task_id: str) -> Iterator[TaskView]:
        """Yield a status whenever the task has advanced, until it has ended."""
        last_status, last_view = None, None
        for status in self.job(task_id).monitor():
            if _task_part(status) != last_status and (view := self.status(status.id)) != last_view:
                yield view
                last_view = view
            last_status = _task_part(status)

    def wait(self, task_id: str, timeout: float | None = None) -> TaskView:
        """Return the last status, however the task ended. Raises TimedOut after `timeout` seconds."""
        return self.status(self.job(task_id).wait(timeout).id)

    def cancel(self, task_id: str) -> TaskView:
        """Ask the task to end; idempotent. `wait` returns when it has ended."""
        return self.status(self.job(task_id).cancel().id)

    def job(self, task_id: str) -> SyncJob:
        """Return the task's job."""
        return self._platform.job(task_id)

    def close(self) -> None:
        """Close connections; tasks go on."""
        self._platform.close()

    def __enter__(self) -> TrainingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTrainingClient:
    """The same as `TrainingClient`, for asyncio."""

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        worker: str | Path | None = None,
        platform: MLPlatform | None = None,
    ) -> None:
        self.platform = platform or MLPlatform(server, token=token)
        self._client = TrainingClient(worker=worker, platform=self.platform.sync)

    async def submit(self, request: TrainingJobRequest) -> str:
        check_request(request)
        return await self.platform.in_thread(lambda: self._client.submit(request))

    async def status(self, task_id: str) -> TaskView:
        return await self.platform.in_thread(lambda: self._client.status(task_id))

    async def monitor(self, task_id: str) -> AsyncGenerator[TaskView, None]:
        last_status, last_view = None, None
        async with aclosing(self.platform.job(task_id).monitor()) as statuses:
            async for status in statuses:
                if _task_part(status) != last_status and (view := await self.status(status.id)) != last_view:
                    yield view
                    last_view = view
                last_status = _task_part(status)

    async def wait(self, task_id: str, timeout: float | None = None) -> TaskView:
        return await self.status((await self.platform.job(task_id).wait(timeout)).id)

    async def cancel(self, task_id: str) -> TaskView:
        return await self.platform.in_thread(lambda: self._client.cancel(task_id))

    async def close(self) -> None:
        await self.platform.close()

    async def __aenter__(self) -> AsyncTrainingClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def check_request(request: object) -> TrainingJobRequest:
    if not isinstance(request, TrainingJobRequest):
        raise BadInput("submit takes a TrainingJobRequest.", fix="TrainingJobRequest(tenant_id='me')")
    return request


def _task_part(status: JobStatus) -> object:
    """Return the part of a job's status that its task shows."""
    return status.state, status.epoch, status.total_epochs, status.progress, status.message


def _program(platform: SyncMLPlatform, worker: str | Path) -> dict[str, object]:
    """Upload the worker and return the training parameters that name it."""
    with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
        source, fields, _ = read_keywords(SubmitHost.current(), path=worker)
        payload, _ = platform.load(source, fields, Path(scratch))
        bundle = pack_bundle(payload, Path(scratch))
        if bundle is not None:
            upload_bundle(platform.api, bundle)
    return {
        "command": list(payload.command),
        "bundle": bundle.sha256 if bundle else None,
        "environment": payload.environment.model_dump(mode="json"),
    }


def _json_table(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{field} must be a table.", fix=f"Write {field}={{'epochs': 3}}.", field=field)
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        fix = "Use only text, numbers, lists and dictionaries."
        raise BadInput(f"{field} cannot be sent as JSON.", why=f"{error}.", fix=fix, field=field) from error
    return dict(value)
