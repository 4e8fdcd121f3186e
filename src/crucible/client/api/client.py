"""The routes of a server as typed methods: those of jobs here, the others on resources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crucible.client.api import routes
from crucible.client.api.deployment import CatalogApi, ComputeApi, Maintenance, Models, Training, idempotency
from crucible.client.api.labels import BulkJobs, Labels
from crucible.client.api.people import Hooks, People, Secrets, without_none
from crucible.client.api.resource import Resource, path_of
from crucible.client.transport.http import Endpoint, Query, Transport
from crucible.core.errors import CrucibleError
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import JobSpec
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.views.comparisons import ComparisonView
from crucible.core.views.jobs import CheckpointView, HealthView, JobPage, JobView
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage
from crucible.core.views.records import ArtifactView, EventView, LogPage, MetricsView
from crucible.core.views.search import HitPage
from crucible.core.views.server import ServerView
from crucible.wire.http.client import Response

if TYPE_CHECKING:  # loaded on use: most commands need none of these
    from crucible.client.sdk.exec import ExecResult
    from crucible.client.sdk.port_forward import PortForward
    from crucible.client.transport.sessions import Session
    from crucible.core.views.frames import Cursors, Frame
    from crucible.wire.http.sessions import Opening

_CHUNK = 256 * 1024
_PAGE = 500


class Api(Resource):
    """The API of one server. A job is named by its id, short id, a suffix of three or more characters, or `last`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        seconds: float = 30.0,
        relocate: Callable[[], Endpoint] | None = None,
        find_running: Callable[[], Endpoint | None] | None = None,
    ) -> None:
        """`relocate` finds or restarts a server that went away; `find_running` only finds one."""
        self.transport = Transport(endpoint, seconds=seconds, relocate=relocate)
        super().__init__(self.transport)
        self.find_running = find_running
        self.compute = ComputeApi(self.transport)
        self.catalog = CatalogApi(self.transport)
        self.models = Models(self.transport)
        self.training = Training(self.transport)
        self.labels = Labels(self.transport)
        self.bulk = BulkJobs(self.transport)
        self.people = People(self.transport)
        self.secrets = Secrets(self.transport)
        self.hooks = Hooks(self.transport)
        self.maintenance = Maintenance(self.transport)

    def close(self) -> None:
        self.transport.close()

    @property
    def endpoint(self) -> Endpoint:
        return self.transport.endpoint

    # Submission

    def has_bundle(self, sha256: str) -> bool:
        return self._send(routes.HAS_BUNDLE, sha256=sha256).status_code == 200

    def put_bundle(self, sha256: str, path: Path) -> None:
        """Upload the archive; idempotent, because its name is its hash."""
        headers = {"Content-Length": str(path.stat().st_size), "Content-Type": "application/gzip"}
        self._send(routes.PUT_BUNDLE, content=lambda: _pieces(path), headers=headers, sha256=sha256)

    def submit(self, spec: JobSpec, *, key: str | None = None) -> JobView:
        """Submit a job once: `key` makes it one job however often the request is retried."""
        return self._call(routes.SUBMIT, body=spec.model_dump(mode="json"), headers=idempotency(key))

    def plan(self, request: PlanRequest) -> PlanView:
        """Return what a program needs, where it would run and at what cost; no provider is contacted."""
        return self._call(routes.PLAN, body=request.model_dump(mode="json", exclude_defaults=True))

    def predictions(self, *, limit: int = 50, cursor: str | None = None) -> PredictionPage:
        """Return a page of predicted and actual run times of jobs, newest first, and the accuracy of all that count."""
        return self._call(routes.PREDICTIONS, query={"limit": limit, "cursor": cursor})

    def newest_predictions(self, limit: int) -> PredictionPage:
        """Return the newest `limit` as one page, whatever the size of the server's pages."""
        page = first = self.predictions(limit=min(limit, _PAGE))
        items = list(first.items)
        while page.next is not None and len(items) < limit:
            page = self.predictions(limit=_PAGE, cursor=page.next)
            items.extend(page.items)
        return first.model_copy(update={"items": tuple(items[:limit]), "next": None})

    # Jobs

    def job(self, ref: str) -> JobView:
        return self._call(routes.JOB, job=ref)

    def jobs(
        self,
        filter: JobFilter | None = None,
        *,
        statuses: Iterable[str] = (),
        active: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> JobPage:
        """Return a page of the jobs that match, newest first. `statuses` and `active` replace those of a filter."""
        short: dict[str, Any] = {"status": tuple(statuses), "active": "true" if active else None}
        filters = short if filter is None else _query_of(filter)
        return self._call(routes.LIST_JOBS, query={**filters, "limit": limit, "cursor": cursor})

    def cancel(self, ref: str) -> JobView:
        """Cancel a job; idempotent, also for one that has ended."""
        return self._call(routes.CANCEL, job=ref)

    def resume(self, ref: str, *, checkpoint: str | None = None, backend: str | None = None) -> JobView:
        """Reopen a job that has ended. Never retried: a second request would find it running."""
        return self._call(routes.RESUME, body=without_none({"checkpoint": checkpoint, "backend": backend}), job=ref)

    def rerun(self, ref: str, *, key: str | None = None) -> JobView:
        """Submit a new job with the recorded inputs of this one; `key` as in `submit`."""
        return self._call(routes.RERUN, headers=idempotency(key), job=ref)

    def health(self, ref: str) -> HealthView:
        """Return a job's health, with evidence and advice."""
        return self._call(routes.HEALTH, job=ref)

    def compare(self, refs: Iterable[str]) -> ComparisonView:
        """Return 2 to 20 jobs side by side."""
        return self._call(routes.COMPARE, query={"job": list(refs)})

    # What a job wrote

    def ask_checkpoint(self, ref: str) -> JobView:
        """Ask the running program to save a checkpoint now; it is listed once it is stored."""
        return self._call(routes.ASK_CHECKPOINT, job=ref)

    def checkpoints(self, ref: str) -> tuple[CheckpointView, ...]:
        """Return the checkpoints, newest first, including those that were not kept."""
        return self._call(routes.CHECKPOINTS, job=ref).items

    def checkpoint(self, ref: str, checkpoint: str) -> CheckpointView:
        """Return a checkpoint by its id, short id or name, or `latest` or `best`."""
        return self._call(routes.CHECKPOINT, job=ref, checkpoint=checkpoint)

    def checkpoint_path(self, ref: str, checkpoint: str) -> str:
        return path_of(routes.CHECKPOINT_CONTENT, job=ref, checkpoint=checkpoint)

    def logs(
        self,
        ref: str,
        *,
        attempt: int | None = None,
        offset: int = 0,
        limit: int = 1024 * 1024,
        since: float | None = None,
    ) -> LogPage:
        query: Query = {"attempt": attempt, "offset": offset, "limit": limit, "since": since}
        return _log_page(self._send(routes.LOGS, query=query, job=ref), offset)

    def search_logs(
        self,
        ref: str,
        text: str,
        *,
        regex: bool = False,
        case: bool = True,
        attempt: int | None = None,
        context: int = 0,
        limit: int = 100,
        cursor: str | None = None,
    ) -> HitPage:
        """Return lines of the output that contain `text` or, with `regex`, match it (default: of all attempts)."""
        flags = {"regex": "true" if regex else "false", "case": "true" if case else "false"}
        query: Query = {"q": text, **flags, "attempt": attempt, "context": context, "limit": limit, "cursor": cursor}
        return self._call(routes.SEARCH_LOGS, query=query, job=ref)

    def metrics(self, ref: str, *, series: Iterable[str] = (), points: int = 500) -> MetricsView:
        return self._call(routes.METRICS, query={"series": list(series), "points": points}, job=ref)

    def events(self, ref: str, *, after: int = 0, limit: int = 200) -> tuple[EventView, ...]:
        return self._call(routes.EVENTS, query={"after": after, "limit": limit}, job=ref).items

    def artifacts(self, ref: str) -> tuple[ArtifactView, ...]:
        return self._call(routes.ARTIFACTS, job=ref).items

    def artifact_path(self, ref: str, path: str) -> str:
        return path_of(routes.ARTIFACT, job=ref, path=path)

    # The server

    def server(self) -> ServerView:
        return self._call(routes.SERVER)

    def stop_server(self) -> None:
        self._send(routes.STOP_SERVER)

    def stream(
        self,
        ref: str,
        *,
        cursors: Cursors | None = None,
        notice: Callable[[str], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[Frame]:
        """Yield all frames of a job from the cursors on, each once, until it has ended and its log is complete.

        Continues across lost connections and server restarts; `notice` is called with a message when that happens.
        `stop` is called every half second; once it returns true the stream ends.
        """
        from crucible.client.transport import stream
        from crucible.core.views.frames import Cursors

        return stream.follow(self, ref, cursors or Cursors(), notice or _silent, stream.Timing(time, stop))

    def session(self, ref: str, opening: Opening) -> Session:
        """Open a session at a running job: a command, or a connection to a port."""
        from crucible.client.transport.sessions import open_session

        return open_session(self.transport, ref, opening)

    def execute(
        self, ref: str, command: Sequence[str], *, input: bytes = b"", timeout: float | None = None
    ) -> ExecResult:
        """Run a command where the job's program runs, and wait for it to end."""
        from crucible.client.sdk.exec import execute

        return execute(self.transport, ref, command, input=input, timeout=timeout)

    def ports(self, ref: str) -> tuple[int, ...]:
        """Return the ports that processes of a running job listen on."""
        from crucible.client.sdk.port_forward import ports_of

        return ports_of(self.transport, ref)

    def forward(
        self,
        ref: str,
        remote: int,
        local: int | None = None,
        *,
        notice: Callable[[CrucibleError], None] | None = None,
    ) -> PortForward:
        """Forward a local port (default: the same number; 0: any free one) to one that a running job listens on."""
        from crucible.client.sdk.port_forward import PortForward, require_port

        require_port(self.ports(ref), remote)
        return PortForward(self.transport, ref, remote, local, notice or (lambda error: None))


def _query_of(filter: JobFilter) -> dict[str, Any]:
    plain = filter.model_dump(mode="json", exclude_defaults=True)
    return {**plain, "active": "true"} if filter.active else plain


def _silent(_text: str) -> None:
    return None


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def _log_page(response: Response, offset: int) -> LogPage:
    def number(headers: Mapping[str, str], name: str, default: int) -> int:
        text = headers.get(name, "")
        return int(text) if text.isdigit() else default

    headers, data = response.headers, response.content
    start = number(headers, "X-Crucible-Offset", offset)
    return LogPage(
        attempt=number(headers, "X-Crucible-Attempt", 0),
        attempts=number(headers, "X-Crucible-Attempts", 0),
        start=start,
        next=number(headers, "X-Crucible-Next", start + len(data)),
        complete=headers.get("X-Crucible-Complete", "").lower() == "true",
        data=data,
    )
