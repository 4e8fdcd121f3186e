"""The documents' training request of a tenant, and the clients that submit and watch it over `/orchestrate`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from crucible.client.request.pythons import SubmitHost
from crucible.client.request.submission import pack_bundle, upload_bundle
from crucible.client.request.submit_options import read_keywords
from crucible.client.sdk.blocking import SyncJob, SyncMLPlatform
from crucible.client.sdk.platform import MLPlatform
from crucible.client.sdk.status import JobStatus
from crucible.core.errors import BadInput, UnknownName
from crucible.core.views.training import TaskView

TrainingStatus = TaskView


@dataclass(frozen=True)
class TrainingJobRequest:
    """What a tenant asks to train. The parameters go as JSON, so they are numbers, texts, lists and tables."""

    tenant_id: str
    training_params: Mapping[str, object] = field(default_factory=dict)
    model_params: Mapping[str, object] = field(default_factory=dict)
    custom_name: str | None = None
    wandb_tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        _texts(tenant_id=self.tenant_id, **({} if self.custom_name is None else {"custom_name": self.custom_name}))
        object.__setattr__(self, "wandb_tags", _tags(self.wandb_tags))
        _check_json("training_params", self.training_params)
        _check_json("model_params", self.model_params)

    @classmethod
    def of(cls, said: Mapping[str, object]) -> TrainingJobRequest:
        """From a table, as a file holds it; UnknownName for a field that there is not."""
        names = [item.name for item in fields(cls)]
        for name in said:
            if name not in names:
                raise UnknownName("field of a training task", name, names)
        values: dict[str, Any] = {"tenant_id": None, **said}
        return cls(**values)

    def body(self) -> dict[str, object]:
        """As `/orchestrate` takes it."""
        return {
            "tenant_id": self.tenant_id,
            "training_params": dict(self.training_params),
            "model_params": dict(self.model_params),
            "custom_name": self.custom_name,
            "wandb_tags": list(self.wandb_tags),
        }


class TrainingClient:
    """Submits training tasks and watches what becomes of them. Each call waits for its answer.

    `server` and `token` are as in `SyncMLPlatform`. `worker` is the program that trains: a script, folder or notebook
    here. Without one the request brings it (`code` of its training_params) or names a model plugin of the server.
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
        """Submit it; returns the task's id, which is that of its job."""
        body = checked(request).body()
        if self._worker is not None:
            body["training_params"] = {**request.training_params, **_program(self._platform, self._worker)}
        return self._platform.api.training.orchestrate(body).task_id

    def status(self, task_id: str) -> TaskView:
        return self._platform.api.training.status(task_id)

    def monitor(self, task_id: str) -> Iterator[TaskView]:
        """A status whenever the task has got further, to its end."""
        seen, told = None, None
        for news in self.job(task_id).monitor():
            if _shown(news) != seen and (status := self.status(news.id)) != told:
                yield status
                told = status
            seen = _shown(news)

    def wait(self, task_id: str, timeout: float | None = None) -> TaskView:
        """The last status, once the task has ended, however it did; TimedOut after `timeout` seconds."""
        return self.status(self.job(task_id).wait(timeout).id)

    def cancel(self, task_id: str) -> TaskView:
        """Ask it to end; again, or after its end, is harmless. `wait` says when it has."""
        return self.status(self.job(task_id).cancel().id)

    def job(self, task_id: str) -> SyncJob:
        """The job itself, with all that can be asked of it."""
        return self._platform.job(task_id)

    def close(self) -> None:
        """Let go of connections; tasks go on."""
        self._platform.close()

    def __enter__(self) -> TrainingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTrainingClient:
    """The same for programs with an event loop."""

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
        asked = checked(request)
        return await self.platform.in_thread(lambda: self._client.submit(asked))

    async def status(self, task_id: str) -> TaskView:
        return await self.platform.in_thread(lambda: self._client.status(task_id))

    async def monitor(self, task_id: str) -> AsyncGenerator[TaskView, None]:
        seen, told = None, None
        async with aclosing(self.platform.job(task_id).monitor()) as statuses:
            async for news in statuses:
                if _shown(news) != seen and (status := await self.status(news.id)) != told:
                    yield status
                    told = status
                seen = _shown(news)

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


def checked(request: object) -> TrainingJobRequest:
    if not isinstance(request, TrainingJobRequest):
        raise BadInput("submit takes a TrainingJobRequest.", fix="TrainingJobRequest(tenant_id='me')")
    return request


def _shown(status: JobStatus) -> object:
    """What of a job's status is part of its task's."""
    return status.state, status.epoch, status.total_epochs, status.progress, status.message


def _program(platform: SyncMLPlatform, worker: str | Path) -> dict[str, object]:
    """The worker, stored on the server, as the training parameters that name it."""
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


def _texts(**said: object) -> None:
    for name, value in said.items():
        if not isinstance(value, str) or not value.strip():
            raise _wrong(name, "is a text that is not empty")


def _tags(said: object) -> tuple[str, ...]:
    if isinstance(said, str) or not isinstance(said, Sequence) or not all(isinstance(tag, str) for tag in said):
        raise _wrong("wandb_tags", "is a list of texts")
    if any("," in tag or not tag.strip() for tag in said):
        raise _wrong("wandb_tags", "holds tags that are not empty and have no commas")
    return tuple(said)


def _check_json(field: str, said: object) -> None:
    if not isinstance(said, Mapping):
        raise _wrong(field, "is a table")
    try:
        json.dumps(dict(said), allow_nan=False)
    except (TypeError, ValueError) as error:
        fix = "Use texts, numbers, lists and dictionaries alone."
        raise BadInput(f"{field} cannot travel.", why=f"{error}. It goes as JSON.", fix=fix, field=field) from error


def _wrong(field: str, rule: str) -> BadInput:
    return BadInput(f"{field} {rule}.", fix=f"Mend {field} of the TrainingJobRequest.", field=field)
