"""The client for plain Python: every method waits for its answer.

All that the client does is here; `platform.py` offers the same to asynchronous programs.
"""

from __future__ import annotations

import codecs
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Unpack

from pydantic import ValidationError

from crucible import __version__
from crucible.client import downloads
from crucible.client.api import Api
from crucible.client.asking import Ask, Options
from crucible.client.candidates import Line, line_up
from crucible.client.checks import check_number, check_text, read_names, wrong
from crucible.client.connection import connect, embedded_of
from crucible.client.executing import Executed
from crucible.client.finding import find_job, walk
from crucible.client.forwarding import Forward
from crucible.client.modeljobs import take_model
from crucible.client.payload import Payload, Request
from crucible.client.placeviews import BackendView, MachineView, PlanView
from crucible.client.planning import ask_for
from crucible.client.predictions import newest_predictions
from crucible.client.pythons import Surroundings
from crucible.client.results import JobResult, result_of
from crucible.client.status import JobStatus, Watch, status_of
from crucible.client.stream import Frame
from crucible.client.submission import submit
from crucible.client.tables import MetricsTable
from crucible.client.views import CheckpointView, EventView, JobView
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput, TimedOut
from crucible.core.jobfilter import JobFilter
from crucible.core.offerfilter import OfferFilter
from crucible.core.resources import MAX_SECONDS
from crucible.core.views.catalog import PriceView
from crucible.core.views.predictions import PredictionPage
from crucible.settings import Settings, load_settings

MOST_JOBS = 1_000_000
REFRESH_SECONDS = 2.0
"""How old what is not told by the stream (cost, last lines) may be in a status."""

_OVERWRITE = {"folder": "`into`", "force": "overwrite=True"}

SIMULATED = "The job goes to a simulated place: its machines are processes of one computer, its money is play money."


class SyncMLPlatform:
    """A server: the named one, or this computer's own, which is started when it is first needed.

    `server` and `token` are as in `crucible --server` and $CRUCIBLE_TOKEN. May be used by several threads.
    """

    def __init__(
        self, server: str | None = None, *, token: str | None = None, settings: Settings | None = None
    ) -> None:
        said = {name: value for name, value in (("server", server), ("token", token)) if value is not None}
        self._settings = settings or load_settings(said)
        self._api: Api | None = None
        self._lock = threading.Lock()

    @property
    def api(self) -> Api:
        """The routes as typed methods; finds or starts the server at first use."""
        with self._lock:
            if self._api is None:
                self._api = connect(self._settings, embedded_of(self._settings, __version__, os.environ))
            return self._api

    def close(self) -> None:
        """Let go of connections; jobs go on."""
        with self._lock:
            api, self._api = self._api, None
        if api is not None:
            api.close()

    def __enter__(self) -> SyncMLPlatform:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(
        self,
        code: object = None,
        requirements: object = None,
        preferences: object = None,
        **more: Unpack[Options],
    ) -> SyncJob:
        """Submit a job: code, a file, a folder, a repository, a notebook, a function or a model (see `Ask`).

        It is stored for good when this returns.
        """
        return self.send(Ask.of(code=code, requirements=requirements, preferences=preferences, **more))

    def send(self, ask: Ask, folder: Path | None = None) -> SyncJob:
        """Submit what was asked for; paths are relative to `folder`, the current one unless given."""
        here = folder or Path.cwd()
        with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
            model = self._model(ask, Path(scratch), here)
            ask = ask if model is None else ask.with_model(model[1])
            line = self.line(ask)
            if line.is_simulated:
                warnings.warn(SIMULATED, stacklevel=3)
            wishes = ask.wishes(line, here, os.environ)
            wishes = replace(wishes, project=wishes.project or self._settings.project.value)
            payload = self.payload(ask, Path(scratch), here) if model is None else model[0]
            return SyncJob(self, submit(self.api, payload, wishes, Path(scratch)))

    def recommend(
        self,
        code: object = None,
        requirements: object = None,
        preferences: object = None,
        **more: Unpack[Options],
    ) -> PlanView:
        """What a program needs and where it would run best: `offers` best first, `chosen`, and `profile`.

        Takes what `submit` takes, and submits nothing.
        """
        return self.look(Ask.of(code=code, requirements=requirements, preferences=preferences, **more))

    def look(self, ask: Ask, folder: Path | None = None) -> PlanView:
        here = folder or Path.cwd()
        with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
            model = self._model(ask, Path(scratch), here)
            payload = self.payload(ask, Path(scratch), here) if model is None else model[0]
            ask = ask if model is None else ask.with_model(model[1])
            return self.api.plan(ask_for(payload, ask.bare_of_market(), ask.aims()))

    def _model(self, ask: Ask, scratch: Path, folder: Path) -> tuple[Payload, Wishes] | None:
        """A model, if that is what is asked for; looked up first, because it may say what GPU it needs."""
        asked = ask.taken.model_ask(folder)
        return None if asked is None else take_model(asked, self._request(ask, scratch, folder), ask.bare())

    def payload(self, ask: Ask, scratch: Path, folder: Path | None = None) -> Payload:
        """The code that was asked for, taken up; what was left out of it is warned of."""
        payload = ask.taken.payload(self._request(ask, scratch, folder or Path.cwd()))
        for note in payload.notes:
            warnings.warn(note, stacklevel=4)
        return payload

    def line(self, ask: Ask) -> Line:
        """Where the job would go, in which order, and why nowhere else; raises when there is no place."""
        order = ask.places
        if order is None and ask.preferences.allowed_backends is None:
            order = self._settings.places.value or None
        return line_up(self.backends(), ask.requirements, ask.preferences, order=order, regions=ask.regions)

    def backends(self) -> tuple[BackendView, ...]:
        return self.api.places.backends()

    def job(self, id: str) -> SyncJob:
        """A job by its id, short id, an ending of three or more characters, `last`, or else its name (the newest)."""
        return SyncJob(self, find_job(self.api, _named(id)))

    def jobs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        active: bool = False,
        name: str | None = None,
        tags: str | Sequence[str] | None = None,
        limit: int = 50,
    ) -> list[SyncJob]:
        """The newest jobs first, at most `limit`; of those of exactly this name, with all of these tags."""
        check_number("limit", limit, 1, MOST_JOBS, whole=True)
        said = {"status": read_names("status", status), "named": name, "tag": read_names("tags", tags)}
        return [SyncJob(self, view) for view in walk(self.api, _filter(said, active=active), limit)]

    def machines(self, *, all: bool = False) -> tuple[MachineView, ...]:
        """Machines in use, what they are for and cost; `all`: also those that are gone."""
        return self.api.places.machines(all=all)

    def catalog(self, wanted: OfferFilter | None = None) -> list[PriceView]:
        """What can be rented, cheapest first, also at providers that are not connected (`runnable`, `why`)."""
        return list(self.api.catalog.walk(wanted))

    def predictions(self, *, limit: int = 50) -> PredictionPage:
        """How long jobs were said to take and how long they took, newest first, with the accuracy of all that count."""
        check_number("limit", limit, 1, MOST_JOBS, whole=True)
        return newest_predictions(self.api, limit)

    def _request(self, ask: Ask, scratch: Path, folder: Path) -> Request:
        return Request(
            around=Surroundings(os.environ, folder),
            scratch=scratch,
            python=ask.python,
            include=ask.include,
            entry=ask.entry,
            ref=ask.ref,
            in_place=ask.in_place,
            limit=self._settings.bundle_limit.value,
        )


def _filter(said: Mapping[str, object], *, active: bool) -> JobFilter:
    """Raises BadInput for what no filter can be, UnknownName for a status that is none."""
    given = {key: value for key, value in said.items() if value is not None}
    try:
        wanted = JobFilter.model_validate({**given, "active": active})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = {"named": "name", "tag": "tags"}.get(str(first["loc"][0]), str(first["loc"][0]))
        raise wrong(field, given.get(str(first["loc"][0])), f"cannot be used: {first['msg']}") from error
    wanted.states(), wanted.tags
    return wanted


class SyncJob:
    """One job. What is asked of it is asked of the server; `view` is what was last heard."""

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
        return f"<{type(self).__name__} {self.view.called}: {self.view.phase}>"

    def status(self) -> JobStatus:
        self.view = self._api.job(self.id)
        return status_of(self.view)

    def monitor(self, *, stop: Callable[[], bool] | None = None) -> Iterator[JobStatus]:
        """A status whenever something is new, to the job's end; over lost connections and restarted servers.

        A move to another place since the job was last looked at is told too. `stop` ends it early.
        """
        watch = Watch(self.view)
        due = 0.0
        for frame in self._api.stream(self.id, stop=stop):
            status = watch.see(frame)
            if status is None:
                continue
            if not status.ended and time.monotonic() >= due:
                status = _fresher(status, watch.see(Frame(stream="job", job=self._api.job(self.id))))
                due = time.monotonic() + REFRESH_SECONDS
            self.view = watch.job
            yield status

    def wait(self, timeout: float | None = None) -> JobStatus:
        """The last status, once the job has ended, however it did; TimedOut after `timeout` seconds."""
        seconds = checked_seconds(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        status = self.status()
        if not status.ended:
            for _ in self.monitor(stop=None if end is None else lambda: time.monotonic() > end):
                pass
            status = self.status()
        if not status.ended:
            raise not_ended(status, seconds)
        return status

    def result(self, timeout: float | None = None) -> JobResult:
        """What it left, once it has ended; JobFailed or JobCancelled unless it completed."""
        return result_of(self._api, self.wait(timeout))

    def logs(
        self, *, follow: bool = False, attempt: int | None = None, stop: Callable[[], bool] | None = None
    ) -> Iterator[str]:
        """The lines of its output, of the newest try unless named; `follow` goes on to the job's end."""
        pieces = self._followed(stop) if follow and attempt is None else self._stored(attempt)
        rest = ""
        for piece in pieces:
            *lines, rest = (rest + piece).split("\n")
            yield from lines
        if rest:
            yield rest

    def _followed(self, stop: Callable[[], bool] | None) -> Iterator[str]:
        return (frame.text for frame in self._api.stream(self.id, stop=stop) if frame.text)

    def _stored(self, attempt: int | None) -> Iterator[str]:
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
        """What happened to it, in order, so far."""
        after = 0
        while page := self._api.events(self.id, after=after):
            yield from page
            after = page[-1].n

    def metrics(self, *series: str, points: int = 500) -> MetricsTable:
        """Its metrics, or the named ones; a long series is thinned to about `points`."""
        return MetricsTable.of(self._api.metrics(self.id, series=series, points=points))

    def checkpoints(self) -> tuple[CheckpointView, ...]:
        """What it saved, the newest first, with those that are no longer kept."""
        return self._api.checkpoints(self.id)

    def checkpoint_now(self) -> None:
        """Have the running program save; the checkpoint is listed once it is stored."""
        self._api.ask_checkpoint(self.id)

    def download(self, into: str | Path = ".", *patterns: str, overwrite: bool = False) -> list[Path]:
        """Fetch its artifacts, or those that the patterns name, below `into`; returns their paths.

        What is there and differs is a Conflict unless `overwrite`.
        """
        target = Path(into)
        chosen = downloads.choose(self._api.artifacts(self.id), patterns)
        if not overwrite:
            downloads.refuse_to_overwrite(chosen, target, **_OVERWRITE)
        return [downloads.download(self._api, self.id, item, target) for item in chosen]

    def download_checkpoint(
        self, checkpoint: str = "latest", into: str | Path = ".", *, overwrite: bool = False
    ) -> Path:
        """Fetch a checkpoint by id, name, `latest` or `best`; a folder comes as a tar archive.

        What is there and differs is a Conflict unless `overwrite`.
        """
        found = self._api.checkpoint(self.id, checkpoint)
        if not overwrite:
            downloads.refuse_to_overwrite([downloads.as_file(found)], Path(into), **_OVERWRITE)
        return downloads.download_checkpoint(self._api, self.id, found, Path(into))

    def exec(self, command: Sequence[str], *, input: bytes = b"", timeout: float | None = None) -> Executed:
        """Run a command where its program runs, to the command's end: `code`, `stdout`, `stderr`.

        It has the program's folder, variables and limits, and ends with it. While the job is starting the program is
        waited for, up to 30 seconds; else Conflict. TimedOut after `timeout` seconds, that wait included.
        """
        return self._api.execute(self.id, command, input=input, timeout=checked_seconds(timeout))

    def ports(self) -> tuple[int, ...]:
        """The ports that its processes listen on."""
        return self._api.ports(self.id)

    def forward(self, port: int, local: int | None = None) -> Forward:
        """Lead a port of this computer (the same unless named, 0 for any) to one that it listens on.

        With `with`, or until `close()`; `local` and `url` say where it is.
        """
        check_number("port", port, 1, 65535, whole=True)
        check_number("local", local, 0, 65535, whole=True)
        return self._api.forward(self.id, port, local)

    def cancel(self) -> JobStatus:
        """Ask it to end; again, or after its end, is harmless. `wait()` says when it has."""
        self.view = self._api.cancel(self.id)
        return status_of(self.view)

    def resume(self, *, checkpoint: str | None = None, backend: str | None = None) -> JobStatus:
        """Reopen it after its end: one more try, from a checkpoint, at its place or another."""
        self.view = self._api.resume(self.id, checkpoint=checkpoint, backend=backend)
        return status_of(self.view)

    def rerun(self) -> SyncJob:
        """A new job from what was recorded of this one."""
        return SyncJob(self._platform, self._api.rerun(self.id))

    @property
    def _api(self) -> Api:
        return self._platform.api


def _fresher(status: JobStatus, fresh: JobStatus | None) -> JobStatus:
    """The newer of two, with the move that only the first may have told."""
    if fresh is None:
        return status
    if not status.backend_changed or fresh.backend_changed:
        return fresh
    return replace(fresh, backend_changed=True, previous_backend=status.previous_backend)


def _named(id: object) -> str:
    named = check_text("id", id).strip()
    if not named:
        raise BadInput("A job is named by its id.", fix="`crucible jobs` lists them.", field="id")
    return named


def checked_seconds(timeout: object) -> float | None:
    """`timeout` in seconds; None is for ever."""
    check_number("timeout", timeout, 0, MAX_SECONDS)
    return float(timeout) if isinstance(timeout, int | float) else None


def not_ended(status: JobStatus, seconds: float | None) -> TimedOut:
    return TimedOut(
        f"{status.id} has not ended within {seconds or 0:g} seconds.",
        why=f"It is {status.phase.value}. {status.message}".strip(),
        fix="It goes on. Wait longer, or cancel it.",
    )
