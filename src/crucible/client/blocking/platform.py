"""A server, for plain Python: what is asked of it, submitted to it and found there."""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Unpack

from pydantic import ValidationError

from crucible import __version__
from crucible.client.api import Api
from crucible.client.asking import Ask, Options
from crucible.client.blocking.job import SyncJob
from crucible.client.candidates import Line, line_up
from crucible.client.checks import check_number, check_text, read_names, wrong
from crucible.client.connection import connect, embedded_of
from crucible.client.finding import find_job, walk
from crucible.client.modeljobs import take_model
from crucible.client.payload import Payload, Request
from crucible.client.placeviews import BackendView, MachineView, PlanView
from crucible.client.planning import ask_for
from crucible.client.predictions import newest_predictions
from crucible.client.pythons import Surroundings
from crucible.client.submission import submit
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput
from crucible.core.jobfilter import JobFilter
from crucible.core.offerfilter import OfferFilter
from crucible.core.views.catalog import PriceView
from crucible.core.views.predictions import PredictionPage
from crucible.settings import Settings, load_settings

MOST_JOBS = 1_000_000
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


def _named(id: object) -> str:
    named = check_text("id", id).strip()
    if not named:
        raise BadInput("A job is named by its id.", fix="`crucible jobs` lists them.", field="id")
    return named
