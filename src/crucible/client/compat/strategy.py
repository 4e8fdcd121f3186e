"""The second document's executor interface: jobs by execution id, statuses as dictionaries. For asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from crucible.client.api import Api
from crucible.client.compat.types import as_requirements
from crucible.client.request.checks import check_number
from crucible.client.sdk.platform import Job, MLPlatform
from crucible.core.errors import BadInput, NotFound, UnknownName
from crucible.core.job.spec import DEFAULT_BACKEND
from crucible.core.routing.plan_request import MAX_HOURS
from crucible.core.views.compute import BackendView, OfferView
from crucible.core.views.jobs import JobView

_EXECUTION = re.compile(r"(?P<backend>[^\s/]+?)-(?P<job>job-[0-9a-z]+)-(?P<pid>[0-9]+)")


class ExecutionStrategy:
    """An executor of one backend.

    An execution id is `local-{job}-{pid}`: the backend, Crucible's id of the job, and the program's process (0 while
    there is none). It names the job from any process, also after a restart.
    """

    def __init__(
        self,
        backend: str = DEFAULT_BACKEND,
        platform: MLPlatform | None = None,
        *,
        needs_gpu: bool = False,
        start_seconds: float = 60.0,
    ) -> None:
        """`start_seconds`: how long `submit_job` waits for the program's process."""
        self.backend = backend
        self._platform = platform or MLPlatform()
        self._needs_gpu = needs_gpu
        self._start_seconds = start_seconds

    async def can_execute(self) -> bool:
        """Return whether the backend is connected and has a machine available, with a GPU if one is needed."""
        try:
            offers = await self._offers()
        except UnknownName:
            return False
        return any(offer.runnable and (offer.capacity.gpus or not self._needs_gpu) for offer in offers)

    async def estimate_cost(self, job_config: Mapping[str, object]) -> float:
        """Return dollars for `duration_hours` of the config; 0.0 if the backend is free.

        Uses the price of `instance_type`, or of the cheapest machine.
        """
        offers = await self._offers()
        instance_type = job_config.get("instance_type")
        fitting = [offer for offer in offers if instance_type in (None, offer.instance_type)]
        if not fitting:
            raise UnknownName("instance type", str(instance_type), {offer.instance_type for offer in offers})
        rate = min(offer.rate_micros_per_hour for offer in fitting)
        if not rate:
            return 0.0
        hours = job_config.get("duration_hours")
        check_number("duration_hours", hours, 0, MAX_HOURS)
        if not isinstance(hours, int | float):
            raise BadInput(
                f"{self.backend} bills by time, and the config does not say how long the job takes.",
                fix="Add duration_hours to it.",
                field="duration_hours",
            )
        return rate / 1e6 * hours

    async def submit_job(self, job_id: int | str, model_plugin: str | Path, config: Mapping[str, object]) -> str:
        """Run a model's script or folder with `--job-id`, `--model` and `--config` (JSON); returns the execution id.

        `job_id` is the caller's own number of the job. `requirements` of the config are those of the job. It waits
        until the program has a process; if that takes too long, the id ends with 0.
        """
        text = _as_json(config)
        job = await self._platform.submit(
            path=Path(model_plugin),
            args=["--job-id", str(job_id), "--model", Path(model_plugin).stem, "--config", text],
            requirements=as_requirements(config.get("requirements")),  # type: ignore[arg-type]
            places=[self.backend],
            name=f"training {job_id}",
            tags=[f"training-{job_id}"],
        )
        return await self._wait_for_process(job)

    async def get_status(self, execution_id: str) -> dict[str, object]:
        """`status` is running, completed, failed (with `return_code`) or not_found; `phase` is Crucible's own word."""
        try:
            view = await self._view(execution_id)
        except NotFound:
            return {"status": "not_found"}
        details: dict[str, object] = {"started_at": view.started_at, "phase": view.phase}
        if not view.ended:
            return {"status": "running", **details}
        code = -view.signal if view.signal else view.exit_code
        return {"status": "completed" if view.status == "completed" else "failed", "return_code": code, **details}

    async def cancel_job(self, execution_id: str) -> None:
        """Ask the program to end (SIGTERM), and after ten seconds force it; idempotent."""
        try:
            await self._platform.job(_job_of(execution_id)).cancel()
        except NotFound:
            return

    async def get_logs(self, execution_id: str, offset: int = 0) -> str:
        """Return the output from this byte on; empty if there is none."""
        check_number("offset", offset, 0, 2**63, whole=True)
        try:
            return await self._platform.in_thread(lambda: _text(self._platform.sync.api, _job_of(execution_id), offset))
        except NotFound:
            return ""

    async def get_metrics(self, execution_id: str) -> dict[str, float | None]:
        """Return the last value of each metric; empty if there is none."""
        try:
            return dict((await self._view(execution_id)).metrics)
        except NotFound:
            return {}

    async def _wait_for_process(self, job: Job) -> str:
        view = job.view
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._start_seconds), aclosing(job.monitor()) as statuses:
                async for _ in statuses:
                    view = await self._platform.in_thread(lambda: self._platform.sync.api.job(job.id))
                    if view.execution_id or view.ended:
                        break
        return view.execution_id or f"{self.backend}-{job.id}-0"

    async def _view(self, execution_id: str) -> JobView:
        job = _job_of(execution_id)
        return await self._platform.in_thread(lambda: self._platform.sync.api.job(job))

    async def _offers(self) -> list[OfferView]:
        """Return the offers of the backend. Raises UnknownName if the server has no such backend."""
        return offers_of(await self._platform.backends(), self.backend)


class LocalExecutor(ExecutionStrategy):
    """This computer; free of charge."""

    def __init__(self, platform: MLPlatform | None = None, *, needs_gpu: bool = False) -> None:
        super().__init__(DEFAULT_BACKEND, platform, needs_gpu=needs_gpu)


def offers_of(backends: Sequence[BackendView], name: str) -> list[OfferView]:
    backend = next((backend for backend in backends if backend.name == name), None)
    if backend is None:
        raise UnknownName(
            "backend", name, [backend.name for backend in backends], fix="`crucible backends` lists them."
        )
    return [OfferView.model_validate(offer) for offer in backend.offers]


def _job_of(execution_id: object) -> str:
    match = _EXECUTION.fullmatch(execution_id) if isinstance(execution_id, str) else None
    if match is None:
        raise NotFound(
            f"{execution_id!r} is not an execution id."[:200],
            fix="They look like local-job-01h...-4711; submit_job returns them.",
        )
    return match["job"]


def _as_json(config: Mapping[str, object]) -> str:
    if not isinstance(config, Mapping):
        raise BadInput(
            "config must be a table.", why=f"It is {config!r}."[:200], fix="config={'epochs': 3}", field="config"
        )
    try:
        return json.dumps({name: value for name, value in config.items() if name != "requirements"})
    except (TypeError, ValueError) as error:
        raise BadInput(
            "config cannot be sent.", why=f"{error}. It goes as JSON.", fix="Use numbers, texts, lists and tables."
        ) from error


def _text(api: Api, job: str, offset: int) -> str:
    pieces: list[bytes] = []
    while (page := api.logs(job, offset=offset)).data:
        pieces.append(page.data)
        offset = page.next
    return b"".join(pieces).decode("utf-8", errors="replace")
