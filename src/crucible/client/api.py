"""The server's routes as typed methods."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.comparisons import ComparisonView
from crucible.client.found import CancelledPage, HitPage, NotePage, NoteView, SubmittedPage, TagPage
from crucible.client.http import Response
from crucible.client.placeviews import (
    BackendPage,
    BackendView,
    MachinePage,
    MachineView,
    OrphanPage,
    OrphanView,
    PlanView,
)
from crucible.client.serverviews import BackupView, ConfirmedView, ModelPage, ModelView, PruneView, ServerView
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
    View,
)
from crucible.core.errors import CrucibleError

if TYPE_CHECKING:  # what most commands do without is loaded by those that need it
    from crucible.client import stream
    from crucible.client.catalog import CatalogApi
    from crucible.client.executing import Executed
    from crucible.client.forwarding import Forward
    from crucible.client.hooks import Hooks
    from crucible.client.people import People
    from crucible.client.predictions import PredictionPage
    from crucible.client.secrets import Secrets
    from crucible.client.sessions import Session
    from crucible.client.training import Training
    from crucible.core.jobfilter import JobFilter
    from crucible.core.models import Order
    from crucible.core.planask import PlanAsk
    from crucible.core.spec import JobSpec
    from crucible.wire.sessions import Opening

V = TypeVar("V", bound=View)

UPLOAD_SECONDS = 600.0
UPKEEP_SECONDS = 600.0
MANY_SECONDS = 120.0
ORPHANS_SECONDS = 120.0
"""Every place is asked."""
PLAN_SECONDS = 60.0
MODELS_SECONDS = 180.0
"""Each plugin is asked, in a process that may import a large framework."""

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

    # Models

    def models(self) -> tuple[ModelView, ...]:
        """The models of the server's Python for models, the broken ones with `error`."""
        response = self.transport.request("GET", "/api/v1/models", seconds=MODELS_SECONDS)
        return read(ModelPage, response).items

    def model(self, name: str) -> ModelView:
        path = f"/api/v1/models/{quote(name, safe='')}"
        return read(ModelView, self.transport.request("GET", path, seconds=MODELS_SECONDS))

    def submit_model(self, order: Order, job: Mapping[str, object] | None = None, *, key: str | None = None) -> JobView:
        """Train, ask or measure a model of the server's. `job` are fields of a spec: `backend`, `resources`, …"""
        body = {
            "method": order.method,
            "config": order.config,
            "inputs": order.inputs,
            "callbacks": list(order.callbacks),
            "job": dict(job or {}),
        }
        response = self.transport.request(
            "POST",
            f"/api/v1/models/{quote(order.model, safe='')}/jobs",
            body=body,
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
            repeat=True,
            seconds=MODELS_SECONDS,
        )
        return read(JobView, response)

    def plan(self, ask: PlanAsk) -> PlanView:
        """What a program needs, where it would run and for how much; nothing is sent to any place."""
        body = ask.model_dump(mode="json", exclude_defaults=True)
        response = self.transport.request("POST", "/api/v1/plan", body=body, repeat=True, seconds=PLAN_SECONDS)
        return read(PlanView, response)

    def predictions(self, *, limit: int = 50, cursor: str | None = None) -> PredictionPage:
        """What plans said of jobs beside how long those took, newest first."""
        from crucible.client.predictions import PredictionPage

        query: Query = {"limit": limit, "cursor": cursor}
        return read(PredictionPage, self.transport.request("GET", "/api/v1/predictions", query=query))

    # Jobs

    def job(self, ref: str) -> JobView:
        return read(JobView, self.transport.request("GET", _job(ref)))

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

    def submit_many(self, specs: Sequence[JobSpec], *, keys: Sequence[str] | None = None) -> SubmittedPage:
        """Up to 500 jobs, each with a key of its own; the answer says of each what became of it."""
        made = keys if keys is not None else [uuid.uuid4().hex for _ in specs]
        jobs = [{"spec": s.model_dump(mode="json"), "key": key} for s, key in zip(specs, made, strict=True)]
        response = self.transport.request(
            "POST", "/api/v1/jobs/bulk", body={"jobs": jobs}, repeat=True, seconds=MANY_SECONDS
        )
        return read(SubmittedPage, response)

    def cancel_many(
        self, wanted: JobFilter | None = None, *, ids: Sequence[str] = (), dry_run: bool = False
    ) -> CancelledPage:
        """Ask for the end of the jobs that fit (up to 1,000, newest first), or of those of these ids."""
        which = {"ids": list(ids)} if wanted is None else {"filter": _plain(wanted)}
        body = {**which, "dry_run": dry_run}
        response = self.transport.request("POST", "/api/v1/jobs/cancel", body=body, repeat=True, seconds=MANY_SECONDS)
        return read(CancelledPage, response)

    # Labels

    def rename(self, ref: str, name: str | None) -> JobView:
        return read(JobView, self.transport.request("PATCH", _job(ref), body={"name": name}, repeat=True))

    def tags(self, ref: str) -> tuple[str, ...]:
        return read(TagPage, self.transport.request("GET", _job(ref, "tags"))).items

    def tag(self, ref: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Remove tags, then add some; the tags of the job after that."""
        body = {"add": list(add), "remove": list(remove)}
        return read(TagPage, self.transport.request("POST", _job(ref, "tags"), body=body, repeat=True)).items

    def notes(self, ref: str) -> tuple[NoteView, ...]:
        return read(NotePage, self.transport.request("GET", _job(ref, "notes"))).items

    def add_note(self, ref: str, text: str) -> NoteView:
        """Leave a note. Not repeated: it would be there twice."""
        return read(NoteView, self.transport.request("POST", _job(ref, "notes"), body={"text": text}, repeat=False))

    def delete_note(self, ref: str, note: str) -> NoteView:
        path = _job(ref, f"notes/{quote(note, safe='')}")
        return read(NoteView, self.transport.request("DELETE", path, repeat=False))

    # One job

    def cancel(self, ref: str) -> JobView:
        """Ask a job to end; asking again, or for one that has ended, is harmless."""
        return read(JobView, self.transport.request("POST", _job(ref, "cancel"), repeat=True))

    def resume(self, ref: str, *, checkpoint: str | None = None, backend: str | None = None) -> JobView:
        """Reopen a job that has ended. Not repeated: the second time it would be found running."""
        wish = {"checkpoint": checkpoint, "backend": backend}
        body = {name: value for name, value in wish.items() if value is not None}
        return read(JobView, self.transport.request("POST", _job(ref, "resume"), body=body, repeat=False))

    def rerun(self, ref: str, *, key: str | None = None) -> JobView:
        """A new job from what was recorded of this one; `key` makes it one, as in `submit`."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return read(JobView, self.transport.request("POST", _job(ref, "rerun"), headers=headers, repeat=True))

    def ask_checkpoint(self, ref: str) -> JobView:
        """Have the running program save a checkpoint now; it is listed once it is stored."""
        return read(JobView, self.transport.request("POST", _job(ref, "checkpoint"), repeat=True))

    def checkpoints(self, ref: str) -> tuple[CheckpointView, ...]:
        """Newest first, with those that were not kept."""
        return read(CheckpointPage, self.transport.request("GET", _job(ref, "checkpoints"))).items

    def checkpoint(self, ref: str, checkpoint: str) -> CheckpointView:
        """One by its id, short id or name, or `latest` or `best`."""
        path = _job(ref, f"checkpoints/{quote(checkpoint, safe='')}")
        return read(CheckpointView, self.transport.request("GET", path))

    def checkpoint_path(self, ref: str, checkpoint: str) -> str:
        return _job(ref, f"checkpoints/{quote(checkpoint, safe='')}/content")

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
        response = self.transport.request("GET", _job(ref, "logs"), query=query)
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
        flags = {"regex": "true" if regex else "false", "case": "true" if case else "false"}
        more = {"attempt": attempt, "context": context, "limit": limit, "cursor": cursor}
        query: Query = {"q": text, **flags, **more}
        return read(HitPage, self.transport.request("GET", _job(ref, "logs/search"), query=query))

    def metrics(self, ref: str, *, series: Iterable[str] = (), points: int = 500) -> MetricsView:
        query: Query = {"series": list(series), "points": points}
        return read(MetricsView, self.transport.request("GET", _job(ref, "metrics"), query=query))

    def health(self, ref: str) -> HealthView:
        """How a job does, with evidence and advice."""
        return read(HealthView, self.transport.request("GET", _job(ref, "health")))

    def compare(self, refs: Iterable[str]) -> ComparisonView:
        """Two to twenty jobs side by side."""
        query: Query = {"job": list(refs)}
        return read(ComparisonView, self.transport.request("GET", "/api/v1/compare", query=query))

    def events(self, ref: str, *, after: int = 0, limit: int = 200) -> tuple[EventView, ...]:
        query = {"after": after, "limit": limit}
        return read(EventPage, self.transport.request("GET", _job(ref, "events"), query=query)).items

    def artifacts(self, ref: str) -> tuple[ArtifactView, ...]:
        return read(ArtifactPage, self.transport.request("GET", _job(ref, "artifacts"))).items

    def artifact_path(self, ref: str, path: str) -> str:
        return _job(ref, f"artifacts/{quote(path)}")

    # Places and the server itself

    def backends(self) -> tuple[BackendView, ...]:
        return read(BackendPage, self.transport.request("GET", "/api/v1/backends")).items

    def machines(self, *, all: bool = False) -> tuple[MachineView, ...]:
        query: Query = {"all": "true" if all else None}
        return read(MachinePage, self.transport.request("GET", "/api/v1/machines", query=query)).items

    def orphans(self) -> tuple[OrphanView, ...]:
        """Machines at our places that carry our tag and that we do not know, or that should be gone."""
        response = self.transport.request("GET", "/api/v1/machines/orphans", seconds=ORPHANS_SECONDS)
        return read(OrphanPage, response).items

    def terminate_machine(self, ref: str) -> MachineView:
        """End a machine, or an orphan by the provider's id; asking again is harmless."""
        path = f"/api/v1/machines/{quote(ref, safe='')}/terminate"
        return read(MachineView, self.transport.request("POST", path, repeat=True))

    # Upkeep

    def prune(self, *, older_than: float | None = None, dry_run: bool = False) -> PruneView:
        """Remove what retention allows, older than so many seconds (the server's own time unless given)."""
        body = {"older_than_seconds": older_than, "dry_run": dry_run}
        response = self.transport.request("POST", "/api/v1/prune", body=body, repeat=True, seconds=UPKEEP_SECONDS)
        return read(PruneView, response)

    def backup(self, path: str) -> BackupView:
        """Copy the database to a new file; `path` is absolute, on the server's disk."""
        body = {"path": path}
        response = self.transport.request("POST", "/api/v1/db/backup", body=body, seconds=UPKEEP_SECONDS)
        return read(BackupView, response)

    def confirm_restore(self) -> ConfirmedView:
        return read(ConfirmedView, self.transport.request("POST", "/api/v1/db/confirm", repeat=True))

    def server(self) -> ServerView:
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


def _plain(wanted: JobFilter) -> dict[str, object]:
    return wanted.model_dump(mode="json", exclude_defaults=True)


def _query_of(wanted: JobFilter) -> dict[str, Any]:
    plain = _plain(wanted)
    return {**plain, "active": "true"} if wanted.active else plain


def _silent(_text: str) -> None:
    return None


def _job(ref: str, rest: str = "") -> str:
    path = f"/api/v1/jobs/{quote(ref, safe='')}"
    return f"{path}/{rest}" if rest else path


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
