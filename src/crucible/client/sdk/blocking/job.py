"""A job of the blocking client."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crucible.client.api import Api
from crucible.client.request.checks import check_number
from crucible.client.sdk import downloads
from crucible.client.sdk.exec import ExecResult
from crucible.client.sdk.metrics_table import MetricsTable
from crucible.client.sdk.port_forward import PortForward
from crucible.client.sdk.results import JobResult, result_of
from crucible.client.sdk.status import JobStatus, StatusReducer, status_of
from crucible.core.compute.resources import MAX_SECONDS
from crucible.core.errors import TimedOut
from crucible.core.views.frames import JobFrame, LogFrame
from crucible.core.views.jobs import CheckpointView, JobView
from crucible.core.views.records import EventView

if TYPE_CHECKING:
    from crucible.client.sdk.blocking.platform import SyncMLPlatform

REFRESH_SECONDS = 2.0
"""Maximum age of what the stream does not contain (cost, last lines) in a status."""

_OVERWRITE = {"folder": "`into`", "force": "overwrite=True"}


class SyncJob:
    """One job. Methods call the server; `view` is the last known state."""

    def __init__(self, platform: SyncMLPlatform, view: JobView) -> None:
        self._platform = platform
        self.view = view

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def name(self) -> str | None:
        return self.view.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.view.display_name}: {self.view.phase}>"

    def status(self) -> JobStatus:
        self.view = self._api.job(self.id)
        return status_of(self.view)

    def monitor(self, *, stop: Callable[[], bool] | None = None) -> Iterator[JobStatus]:
        """Yield a status on every change until the job has ended, across lost connections and server restarts.

        A move to another backend since the last known state is reported too. `stop` ends the iteration early.
        """
        watch = StatusReducer(self.view)
        due = 0.0
        for frame in self._api.stream(self.id, stop=stop):
            status = watch.apply(frame)
            if status is None:
                continue
            if not status.ended and time.monotonic() >= due:
                status = _newer(status, watch.apply(JobFrame(job=self._api.job(self.id))))
                due = time.monotonic() + REFRESH_SECONDS
            self.view = watch.job
            yield status

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait for the job to end and return its last status. Raises TimedOut after `timeout` seconds."""
        seconds = check_timeout(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        status = self.status()
        if not status.ended:
            for _ in self.monitor(stop=None if end is None else lambda: time.monotonic() > end):
                pass
            status = self.status()
        if not status.ended:
            raise still_running(status, seconds)
        return status

    def result(self, timeout: float | None = None) -> JobResult:
        """Wait for the job to end and return its result. Raises JobFailed or JobCancelled unless it completed."""
        return result_of(self._api, self.wait(timeout))

    def logs(
        self, *, follow: bool = False, attempt: int | None = None, stop: Callable[[], bool] | None = None
    ) -> Iterator[str]:
        """Yield the lines of its output (default: of the latest attempt); with `follow`, until the job has ended."""
        pieces = self._follow_log(stop) if follow and attempt is None else self._stored_log(attempt)
        rest = ""
        for piece in pieces:
            *lines, rest = (rest + piece).split("\n")
            yield from lines
        if rest:
            yield rest

    def _follow_log(self, stop: Callable[[], bool] | None) -> Iterator[str]:
        return (frame.text for frame in self._api.stream(self.id, stop=stop) if isinstance(frame, LogFrame))

    def _stored_log(self, attempt: int | None) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        offset = 0
        while True:
            page = self._api.logs(self.id, attempt=attempt, offset=offset)
            if not page.data:
                yield decoder.decode(b"", final=True)
                return
            attempt, offset = attempt or page.attempt, page.next
            yield decoder.decode(page.data)

    def events(self) -> Iterator[EventView]:
        """Yield its events so far, in order."""
        after = 0
        while page := self._api.events(self.id, after=after):
            yield from page
            after = page[-1].n

    def metrics(self, *series: str, points: int = 500) -> MetricsTable:
        """Return its metrics, or the named series; long series are thinned to about `points` points."""
        return MetricsTable.from_view(self._api.metrics(self.id, series=series, points=points))

    def checkpoints(self) -> tuple[CheckpointView, ...]:
        """Return its checkpoints, newest first, including those that are no longer kept."""
        return self._api.checkpoints(self.id)

    def checkpoint_now(self) -> None:
        """Ask the running program to save a checkpoint; it is listed once it is stored."""
        self._api.ask_checkpoint(self.id)

    def download(self, into: str | Path = ".", *patterns: str, overwrite: bool = False) -> list[Path]:
        """Download its artifacts, or those that the patterns match, below `into`; return their paths.

        Raises Conflict if an existing file differs, unless `overwrite`.
        """
        target = Path(into)
        chosen = downloads.select_artifacts(self._api.artifacts(self.id), patterns)
        if not overwrite:
            downloads.refuse_to_overwrite(chosen, target, **_OVERWRITE)
        return [downloads.download(self._api, self.id, item, target) for item in chosen]

    def download_checkpoint(
        self, checkpoint: str = "latest", into: str | Path = ".", *, overwrite: bool = False
    ) -> Path:
        """Download a checkpoint by id, name, `latest` or `best`; a folder comes as a tar archive.

        Raises Conflict if an existing file differs, unless `overwrite`.
        """
        view = self._api.checkpoint(self.id, checkpoint)
        if not overwrite:
            downloads.refuse_to_overwrite([downloads.as_file(view)], Path(into), **_OVERWRITE)
        return downloads.download_checkpoint(self._api, self.id, view, Path(into))

    def exec(self, command: Sequence[str], *, input: bytes = b"", timeout: float | None = None) -> ExecResult:
        """Run a command where its program runs, wait for it, and return `code`, `stdout` and `stderr`.

        The command has the program's folder, variables and limits, and ends with it. While the job is starting, waits
        up to 30 seconds for the program. Raises Conflict if there is none, TimedOut after `timeout` seconds in all.
        """
        return self._api.execute(self.id, command, input=input, timeout=check_timeout(timeout))

    def ports(self) -> tuple[int, ...]:
        """Return the ports that its processes listen on."""
        return self._api.ports(self.id)

    def forward(self, port: int, local: int | None = None) -> PortForward:
        """Forward a local port (default: the same number; 0: any free one) to one that it listens on.

        Lasts until `close()`, or the end of a `with` block; `local` and `url` have the address.
        """
        check_number("port", port, 1, 65535, whole=True)
        check_number("local", local, 0, 65535, whole=True)
        return self._api.forward(self.id, port, local)

    def cancel(self) -> JobStatus:
        """Ask it to end; idempotent. `wait()` returns when it has ended."""
        self.view = self._api.cancel(self.id)
        return status_of(self.view)

    def resume(self, *, checkpoint: str | None = None, backend: str | None = None) -> JobStatus:
        """Reopen the ended job for one more attempt, from a checkpoint, on its backend or another."""
        self.view = self._api.resume(self.id, checkpoint=checkpoint, backend=backend)
        return status_of(self.view)

    def rerun(self) -> SyncJob:
        """Submit a new job with the recorded inputs of this one."""
        return SyncJob(self._platform, self._api.rerun(self.id))

    @property
    def _api(self) -> Api:
        return self._platform.api


def _newer(status: JobStatus, fresh: JobStatus | None) -> JobStatus:
    """Return the newer of two statuses, with a move that only the first one reports."""
    if fresh is None:
        return status
    if not status.backend_changed or fresh.backend_changed:
        return fresh
    return replace(fresh, backend_changed=True, previous_backend=status.previous_backend)


def check_timeout(timeout: object) -> float | None:
    """Return `timeout` in seconds; None waits for ever. Raises BadInput for an invalid duration."""
    check_number("timeout", timeout, 0, MAX_SECONDS)
    return float(timeout) if isinstance(timeout, int | float) else None


def still_running(status: JobStatus, seconds: float | None) -> TimedOut:
    """Return the error for a job that outlived the wait."""
    return TimedOut(
        f"{status.id} has not ended within {seconds or 0:g} seconds.",
        why=f"It is {status.phase.value}. {status.message}".strip(),
        fix="The job goes on. Wait longer, or cancel it.",
    )
