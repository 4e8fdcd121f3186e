"""The asyncio client: the same methods as `blocking/`, run in threads so that the event loop is never blocked.

Calls share a small pool of threads; each iterator has a thread of its own.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar, Unpack

from crucible.client.request.pythons import SubmitHost
from crucible.client.request.submit_options import SubmitOptions, read_keywords
from crucible.client.sdk.blocking import SyncJob, SyncMLPlatform
from crucible.client.sdk.blocking.job import check_timeout, still_running
from crucible.client.sdk.exec import ExecResult
from crucible.client.sdk.metrics_table import MetricsTable
from crucible.client.sdk.port_forward import PortForward
from crucible.client.sdk.results import JobResult
from crucible.client.sdk.status import JobStatus
from crucible.client.transport.async_iterator import iterate_in_thread
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import Conflict
from crucible.core.views.backends import BackendCheckView, BackendDisconnectView, BackendSettingsView
from crucible.core.views.catalog import PriceView
from crucible.core.views.compute import BackendView, MachineView
from crucible.core.views.jobs import CheckpointView, JobView
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage
from crucible.core.views.records import EventView
from crucible.settings import Settings

T = TypeVar("T")

MAX_CALLS = 8
"""Concurrent requests of one platform."""


class MLPlatform:
    """A server: the named one, or the embedded one of this computer, which is started when first needed.

    `server` and `token` are as in `crucible --server` and $CRUCIBLE_TOKEN. `sync` is the blocking client.
    """

    def __init__(
        self, server: str | None = None, *, token: str | None = None, settings: Settings | None = None
    ) -> None:
        self.sync = SyncMLPlatform(server, token=token, settings=settings)
        self._pool = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="crucible")

    async def __aenter__(self) -> MLPlatform:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections; jobs go on."""
        await self.in_thread(self.sync.close)
        self._pool.shutdown(wait=False)

    def submit(
        self,
        code: object = None,
        requirements: object = None,
        preferences: object = None,
        **more: Unpack[SubmitOptions],
    ) -> Job:
        """Submit a job: code, a file, a folder, a repository, a notebook, a function or a model (see `SubmitOptions`).

        Invalid arguments raise here, at once; the upload runs in the background. `await` the job to know that it is
        stored. If the server refuses it, the first method that waits raises the error.
        """
        keywords = {"code": code, "requirements": requirements, "preferences": preferences, **more}
        request = read_keywords(SubmitHost.current(), **keywords)
        return Job(self, self._begin(lambda: self.sync.submit_job(*request)))

    async def recommend(
        self,
        code: object = None,
        requirements: object = None,
        preferences: object = None,
        **more: Unpack[SubmitOptions],
    ) -> PlanView:
        """Return what a program needs and where it would run best: `offers`, best first, `chosen`, and `profile`.

        Takes the arguments of `submit`, and submits nothing.
        """
        keywords = {"code": code, "requirements": requirements, "preferences": preferences, **more}
        request = read_keywords(SubmitHost.current(), **keywords)
        return await self.in_thread(lambda: self.sync.plan_job(*request))

    def job(self, id: str) -> Job:
        """Return a job by id, short id, id suffix of three or more characters, `last`, or else name (the newest)."""
        return Job(self, self._begin(lambda: self.sync.job(id)))

    async def jobs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        active: bool = False,
        name: str | None = None,
        tags: str | Sequence[str] | None = None,
        limit: int = 50,
    ) -> list[Job]:
        """Return the newest jobs, at most `limit`, with exactly this name and all of these tags."""
        filters = {"status": status, "active": active, "name": name, "tags": tags, "limit": limit}
        jobs = await self.in_thread(lambda: self.sync.jobs(**filters))  # type: ignore[arg-type]
        return [Job(self, _known(job)) for job in jobs]

    async def machines(self, *, all: bool = False) -> tuple[MachineView, ...]:
        """Return the machines in use, with purpose and cost; `all` adds those that are gone."""
        return await self.in_thread(lambda: self.sync.machines(all=all))

    async def catalog(self, wanted: OfferFilter | None = None) -> list[PriceView]:
        """Return the offers, cheapest first, including those of unconnected providers (`runnable`, `why`)."""
        return await self.in_thread(lambda: self.sync.catalog(wanted))

    async def predictions(self, *, limit: int = 50) -> PredictionPage:
        """Return predicted and actual run times of jobs, newest first, and the accuracy of all that count."""
        return await self.in_thread(lambda: self.sync.predictions(limit=limit))

    async def backends(self) -> tuple[BackendView, ...]:
        return await self.in_thread(self.sync.backends)

    async def backend(self, name: str) -> BackendSettingsView:
        """Return a backend's settings, with their values and where each comes from; for operators of the server."""
        return await self.in_thread(lambda: self.sync.backend(name))

    async def check_backend(self, name: str, /, **settings: object) -> BackendCheckView:
        """Check a backend as it would be with these settings, without connecting it."""
        return await self.in_thread(lambda: self.sync.check_backend(name, **settings))

    async def connect_backend(self, name: str, /, **settings: object) -> BackendCheckView:
        """Connect a backend, or change its settings, if its check finds nothing wrong; None removes a setting."""
        return await self.in_thread(lambda: self.sync.connect_backend(name, **settings))

    async def disconnect_backend(self, name: str) -> BackendDisconnectView:
        """Place no jobs on a backend any more; it is disconnected once its machines are gone."""
        return await self.in_thread(lambda: self.sync.disconnect_backend(name))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread and return its result."""
        return await asyncio.wrap_future(self._begin(work))

    def _begin(self, work: Callable[[], T]) -> Future[T]:
        try:
            return self._pool.submit(work)
        except RuntimeError as error:
            raise Conflict("This platform is closed.", fix="Make another MLPlatform().") from error


class Job(Awaitable["Job"]):
    """One job; `await` it once to know that the server has it."""

    def __init__(self, platform: MLPlatform, pending: Future[SyncJob]) -> None:
        self._platform = platform
        self._pending = pending
        self._awaited = False

    def __await__(self) -> Generator[object, None, Job]:
        yield from self._known().__await__()
        return self

    async def _known(self) -> SyncJob:
        self._awaited = True
        # Shielded: cancelling one waiter must not cancel the submission.
        return await asyncio.shield(asyncio.wrap_future(self._pending))

    async def _ask(self, work: Callable[[SyncJob], T]) -> T:
        job = await self._known()
        return await self._platform.in_thread(lambda: work(job))

    def __del__(self) -> None:
        if not self._awaited and self._pending.done() and not self._pending.cancelled():
            error = self._pending.exception()
            if error is not None:
                warnings.warn(f"A job that nothing awaited was not submitted: {error}", ResourceWarning, stacklevel=1)

    def __repr__(self) -> str:
        there = self._pending.done() and self._pending.exception() is None
        return repr(self._pending.result()).replace("SyncJob", "Job") if there else "<Job: being submitted>"

    @property
    def view(self) -> JobView:
        """The last known state. Raises Conflict before the server has answered."""
        self._awaited = True
        if not self._pending.done():
            raise Conflict(
                "The job is still being submitted.", fix="Wait for it first: job = await platform.submit(...)"
            )
        return self._pending.result().view

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def name(self) -> str | None:
        return self.view.name

    async def status(self) -> JobStatus:
        return await self._ask(SyncJob.status)

    async def monitor(self) -> AsyncGenerator[JobStatus, None]:
        """Yield a status on every change until the job has ended, across lost connections and server restarts.

        A slow reader skips statuses, but never a move to another backend.
        """
        job = await self._known()
        async with aclosing(iterate_in_thread(lambda stop: job.monitor(stop=stop), replaces=_replaces)) as statuses:
            async for status in statuses:
                yield status

    async def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait for the job to end and return its last status. Raises TimedOut after `timeout` seconds."""
        seconds = check_timeout(timeout)
        status = await self.status()
        if not status.ended:
            try:
                async with asyncio.timeout(seconds), aclosing(self.monitor()) as statuses:
                    async for latest in statuses:
                        status = latest
            except TimeoutError:
                raise still_running(status, seconds) from None
            status = await self.status()
        return status

    async def result(self, timeout: float | None = None) -> JobResult:
        """Wait for the job to end and return its result. Raises JobFailed or JobCancelled unless it completed."""
        await self.wait(timeout)
        return await self._ask(SyncJob.result)

    async def logs(self, *, follow: bool = False, attempt: int | None = None) -> AsyncGenerator[str, None]:
        """Yield the lines of its output (default: of the latest attempt); with `follow`, until the job has ended."""
        job = await self._known()
        lines = iterate_in_thread(lambda stop: job.logs(follow=follow, attempt=attempt, stop=stop))
        async with aclosing(lines) as stream:
            async for line in stream:
                yield line

    async def events(self) -> AsyncGenerator[EventView, None]:
        """Yield its events so far, in order."""
        job = await self._known()
        async with aclosing(iterate_in_thread(lambda stop: job.events())) as stream:
            async for event in stream:
                yield event

    async def metrics(self, *series: str, points: int = 500) -> MetricsTable:
        """Return its metrics, or the named series; long series are thinned to about `points` points."""
        return await self._ask(lambda job: job.metrics(*series, points=points))

    async def checkpoints(self) -> tuple[CheckpointView, ...]:
        """Return its checkpoints, newest first, including those that are no longer kept."""
        return await self._ask(SyncJob.checkpoints)

    async def checkpoint_now(self) -> None:
        """Ask the running program to save a checkpoint; it is listed once it is stored."""
        await self._ask(SyncJob.checkpoint_now)

    async def download(self, into: str | Path = ".", *patterns: str, overwrite: bool = False) -> list[Path]:
        """Download its artifacts, or those that the patterns match, below `into`; return their paths."""
        return await self._ask(lambda job: job.download(into, *patterns, overwrite=overwrite))

    async def download_checkpoint(
        self, checkpoint: str = "latest", into: str | Path = ".", *, overwrite: bool = False
    ) -> Path:
        """Download a checkpoint by id, name, `latest` or `best`; a folder comes as a tar archive."""
        return await self._ask(lambda job: job.download_checkpoint(checkpoint, into, overwrite=overwrite))

    async def exec(self, command: Sequence[str], *, input: bytes = b"", timeout: float | None = None) -> ExecResult:
        """Run a command where its program runs, wait for it, and return `code`, `stdout` and `stderr`.

        The command has the program's folder, variables and limits, and ends with it. While the job is starting, waits
        up to 30 seconds for the program. Raises Conflict if there is none, TimedOut after `timeout` seconds in all.
        """
        return await self._ask(lambda job: job.exec(command, input=input, timeout=timeout))

    async def ports(self) -> tuple[int, ...]:
        """Return the ports that its processes listen on."""
        return await self._ask(SyncJob.ports)

    @asynccontextmanager
    async def forward(self, port: int, local: int | None = None) -> AsyncGenerator[PortForward, None]:
        """Forward a local port (default: the same number; 0: any free one) to one that it listens on."""
        forward = await self._ask(lambda job: job.forward(port, local))
        try:
            yield forward
        finally:
            await self._platform.in_thread(forward.close)

    async def cancel(self) -> JobStatus:
        """Ask it to end; idempotent. `wait()` returns when it has ended."""
        return await self._ask(SyncJob.cancel)

    async def resume(self, *, checkpoint: str | None = None, backend: str | None = None) -> JobStatus:
        """Reopen the ended job for one more attempt, from a checkpoint, on its backend or another."""
        return await self._ask(lambda job: job.resume(checkpoint=checkpoint, backend=backend))

    async def rerun(self) -> Job:
        """Submit a new job with the recorded inputs of this one."""
        return Job(self._platform, _known(await self._ask(SyncJob.rerun)))


def _known(job: SyncJob) -> Future[SyncJob]:
    found: Future[SyncJob] = Future()
    found.set_result(job)
    return found


def _replaces(old: JobStatus, new: JobStatus) -> bool:
    """Return whether a newer status may replace an unread one: not if either reports a move."""
    return not old.backend_changed and not new.backend_changed
