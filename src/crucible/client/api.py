"""The server's routes as typed methods."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.http import Response
from crucible.client.routes import job_path
from crucible.client.transport import Endpoint, Query, Transport
from crucible.client.views import (
    ArtifactPage,
    ArtifactView,
    CheckpointPage,
    CheckpointView,
    EventPage,
    EventView,
    HealthView,
    JobPage,
    JobView,
    LogPage,
    MetricsView,
)
from crucible.core.errors import CrucibleError

if TYPE_CHECKING:  # what most commands do without is loaded by those that need it
    from crucible.client import stream
    from crucible.client.catalog import CatalogApi
    from crucible.client.comparisons import ComparisonView
    from crucible.client.executing import Executed
    from crucible.client.forwarding import Forward
    from crucible.client.found import HitPage
    from crucible.client.hooks import Hooks
    from crucible.client.labels import Labels
    from crucible.client.many import Many
    from crucible.client.models import Models
    from crucible.client.people import People
    from crucible.client.places import Places
    from crucible.client.placeviews import PlanView
    from crucible.client.secrets import Secrets
    from crucible.client.serverviews import ServerView
    from crucible.client.sessions import Session
    from crucible.client.training import Training
    from crucible.client.upkeep import Upkeep
    from crucible.core.jobfilter import JobFilter
    from crucible.core.planask import PlanAsk
    from crucible.core.spec import JobSpec
    from crucible.core.views.predictions import PredictionPage
    from crucible.wire.sessions import Opening

UPLOAD_SECONDS = 600.0
PLAN_SECONDS = 60.0

_CHUNK = 256 * 1024


class Api:
    """One server. A job is named by its id, short id, an ending of three or more characters, or `last`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        seconds: float = 30.0,
        relocate: Callable[[], Endpoint] | None = None,
        found: Callable[[], Endpoint | None] | None = None,
    ) -> None:
        """`relocate` finds or restarts a server that went away, `found` only looks for one."""
        self.transport = Transport(endpoint, seconds=seconds, relocate=relocate)
        self._found = found

    def close(self) -> None:
        self.transport.close()

    @property
    def endpoint(self) -> Endpoint:
        return self.transport.endpoint

    @cached_property
    def places(self) -> Places:
        from crucible.client.places import Places

        return Places(self.transport)

    @cached_property
    def models(self) -> Models:
        from crucible.client.models import Models

        return Models(self.transport)

    @cached_property
    def many(self) -> Many:
        from crucible.client.many import Many

        return Many(self.transport)

    @cached_property
    def labels(self) -> Labels:
        from crucible.client.labels import Labels

        return Labels(self.transport)

    @cached_property
    def upkeep(self) -> Upkeep:
        from crucible.client.upkeep import Upkeep

        return Upkeep(self.transport)

    @cached_property
    def people(self) -> People:
        from crucible.client.people import People

        return People(self.transport)

    @cached_property
    def secrets(self) -> Secrets:
        from crucible.client.secrets import Secrets

        return Secrets(self.transport)

    @cached_property
    def hooks(self) -> Hooks:
        from crucible.client.hooks import Hooks

        return Hooks(self.transport)

    @cached_property
    def catalog(self) -> CatalogApi:
        from crucible.client.catalog import CatalogApi

        return CatalogApi(self.transport)

    @cached_property
    def training(self) -> Training:
        from crucible.client.training import Training

        return Training(self.transport)

    # Bundles and submission

    def has_bundle(self, sha256: str) -> bool:
        return self.transport.request("HEAD", f"/api/v1/bundles/{sha256}").status_code == 200

    def put_bundle(self, sha256: str, path: Path) -> None:
        """Upload the archive; again is harmless, because its name is its hash."""
        headers = {"Content-Length": str(path.stat().st_size), "Content-Type": "application/gzip"}
        self.transport.request(
            "PUT",
            f"/api/v1/bundles/{sha256}",
            content=lambda: _pieces(path),
            headers=headers,
            repeat=True,
            seconds=UPLOAD_SECONDS,
        )

    def submit(self, spec: JobSpec, *, key: str | None = None) -> JobView:
        """Submit once: however often the request has to be repeated, `key` makes it one job."""
        response = self.transport.request(
            "POST",
            "/api/v1/jobs",
            body=spec.model_dump(mode="json"),
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
            repeat=True,
        )
        return read(JobView, response)

    def plan(self, ask: PlanAsk) -> PlanView:
        """What a program needs, where it would run and for how much; nothing is sent to any place."""
        from crucible.client.placeviews import PlanView

        body = ask.model_dump(mode="json", exclude_defaults=True)
        response = self.transport.request("POST", "/api/v1/plan", body=body, repeat=True, seconds=PLAN_SECONDS)
        return read(PlanView, response)

    def predictions(self, *, limit: int = 50, cursor: str | None = None) -> PredictionPage:
        """What plans said of jobs beside how long those took, newest first."""
        from crucible.core.views.predictions import PredictionPage

        query: Query = {"limit": limit, "cursor": cursor}
        return read(PredictionPage, self.transport.request("GET", "/api/v1/predictions", query=query))

    # Jobs

    def job(self, ref: str) -> JobView:
        return read(JobView, self.transport.request("GET", job_path(ref)))

    def jobs(
        self,
        wanted: JobFilter | None = None,
        *,
        statuses: Iterable[str] = (),
        active: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> JobPage:
        """A page of the jobs that fit, newest first; `statuses` and `active` are short for those of a filter."""
        short: dict[str, Any] = {"status": tuple(statuses), "active": "true" if active else None}
        query: Query = {**(short if wanted is None else _query_of(wanted)), "limit": limit, "cursor": cursor}
        return read(JobPage, self.transport.request("GET", "/api/v1/jobs", query=query))

    # One job

    def cancel(self, ref: str) -> JobView:
        """Ask a job to end; asking again, or for one that has ended, is harmless."""
        return read(JobView, self.transport.request("POST", job_path(ref, "cancel"), repeat=True))

    def resume(self, ref: str, *, checkpoint: str | None = None, backend: str | None = None) -> JobView:
        """Reopen a job that has ended. Not repeated: the second time it would be found running."""
        wish = {"checkpoint": checkpoint, "backend": backend}
        body = {name: value for name, value in wish.items() if value is not None}
        return read(JobView, self.transport.request("POST", job_path(ref, "resume"), body=body, repeat=False))

    def rerun(self, ref: str, *, key: str | None = None) -> JobView:
        """A new job from what was recorded of this one; `key` makes it one, as in `submit`."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return read(JobView, self.transport.request("POST", job_path(ref, "rerun"), headers=headers, repeat=True))

    def ask_checkpoint(self, ref: str) -> JobView:
        """Have the running program save a checkpoint now; it is listed once it is stored."""
        return read(JobView, self.transport.request("POST", job_path(ref, "checkpoint"), repeat=True))

    def checkpoints(self, ref: str) -> tuple[CheckpointView, ...]:
        """Newest first, with those that were not kept."""
        return read(CheckpointPage, self.transport.request("GET", job_path(ref, "checkpoints"))).items

    def checkpoint(self, ref: str, checkpoint: str) -> CheckpointView:
        """One by its id, short id or name, or `latest` or `best`."""
        path = job_path(ref, f"checkpoints/{quote(checkpoint, safe='')}")
        return read(CheckpointView, self.transport.request("GET", path))

    def checkpoint_path(self, ref: str, checkpoint: str) -> str:
        return job_path(ref, f"checkpoints/{quote(checkpoint, safe='')}/content")

    def logs(
        self,
        ref: str,
        *,
        attempt: int | None = None,
        offset: int = 0,
        limit: int = 1024 * 1024,
        since: float | None = None,
    ) -> LogPage:
        query = {"attempt": attempt, "offset": offset, "limit": limit, "since": since}
        response = self.transport.request("GET", job_path(ref, "logs"), query=query)
        return _log_page(response, offset)

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
        """Lines of the output that hold `text` or, with `regex`, match it; of all attempts unless one is named."""
        from crucible.client.found import HitPage

        flags = {"regex": "true" if regex else "false", "case": "true" if case else "false"}
        more = {"attempt": attempt, "context": context, "limit": limit, "cursor": cursor}
        query: Query = {"q": text, **flags, **more}
        return read(HitPage, self.transport.request("GET", job_path(ref, "logs/search"), query=query))

    def metrics(self, ref: str, *, series: Iterable[str] = (), points: int = 500) -> MetricsView:
        query: Query = {"series": list(series), "points": points}
        return read(MetricsView, self.transport.request("GET", job_path(ref, "metrics"), query=query))

    def health(self, ref: str) -> HealthView:
        """How a job does, with evidence and advice."""
        return read(HealthView, self.transport.request("GET", job_path(ref, "health")))

    def compare(self, refs: Iterable[str]) -> ComparisonView:
        """Two to twenty jobs side by side."""
        from crucible.client.comparisons import ComparisonView

        query: Query = {"job": list(refs)}
        return read(ComparisonView, self.transport.request("GET", "/api/v1/compare", query=query))

    def events(self, ref: str, *, after: int = 0, limit: int = 200) -> tuple[EventView, ...]:
        query = {"after": after, "limit": limit}
        return read(EventPage, self.transport.request("GET", job_path(ref, "events"), query=query)).items

    def artifacts(self, ref: str) -> tuple[ArtifactView, ...]:
        return read(ArtifactPage, self.transport.request("GET", job_path(ref, "artifacts"))).items

    def artifact_path(self, ref: str, path: str) -> str:
        return job_path(ref, f"artifacts/{quote(path)}")

    # The server itself

    def server(self) -> ServerView:
        from crucible.client.serverviews import ServerView

        return read(ServerView, self.transport.request("GET", "/api/v1/server"))

    def stop_server(self) -> None:
        self.transport.request("POST", "/api/v1/server/stop")

    def stream(
        self,
        ref: str,
        *,
        cursors: stream.Cursors | None = None,
        notice: Callable[[str], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[stream.Frame]:
        """Everything about a job from the cursors on, each thing once, until it has ended and its log is out.

        Goes on over lost connections and a restarted server. `notice` is told, in words, when that happens.
        `stop` is asked now and then; once it says yes, nothing more comes.
        """
        from crucible.client import stream

        link = stream.Link(self, self.transport, self._found)
        return stream.follow(link, ref, cursors or stream.Cursors(), notice or _silent, stream.Timing(time, stop))

    def session(self, ref: str, wanted: Opening) -> Session:
        """A command, or a connection to a port, at a running job."""
        from crucible.client.sessions import open_session

        return open_session(self.transport, ref, wanted)

    def execute(
        self, ref: str, command: Sequence[str], *, input: bytes = b"", timeout: float | None = None
    ) -> Executed:
        """Run a command in a running job's surroundings, to its end."""
        from crucible.client.executing import execute

        return execute(self.transport, ref, command, input=input, timeout=timeout)

    def ports(self, ref: str) -> tuple[int, ...]:
        """The ports that processes of a running job listen on."""
        from crucible.client.forwarding import ports_of

        return ports_of(self.transport, ref)

    def forward(
        self,
        ref: str,
        remote: int,
        local: int | None = None,
        *,
        notice: Callable[[CrucibleError], None] | None = None,
    ) -> Forward:
        """Lead a port of this computer (the same unless named, 0 for any) to one that a running job listens on."""
        from crucible.client.forwarding import Forward, need_port

        need_port(self.ports(ref), remote)
        return Forward(self.transport, ref, remote, local, notice or (lambda error: None))


def _query_of(wanted: JobFilter) -> dict[str, Any]:
    plain = wanted.model_dump(mode="json", exclude_defaults=True)
    return {**plain, "active": "true"} if wanted.active else plain


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
