"""The blocking client of a server."""

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
from crucible.client.payload import CodeSource, Payload
from crucible.client.request.checks import check_names, check_number, check_text, invalid_value
from crucible.client.request.job_request import PartialSpec, make_spec, merge
from crucible.client.request.planning import plan_request
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.ranking import rank_backends
from crucible.client.request.submission import build_payload, submit
from crucible.client.request.submit_options import SubmitOptions, read_keywords
from crucible.client.sdk.blocking.job import SyncJob
from crucible.client.sdk.job_lookup import find_job, iterate_jobs
from crucible.client.server.connection import connect, make_embedded
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import BadInput
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import JobSpec
from crucible.core.patterns import broken_rule
from crucible.core.routing.plan_request import Goal
from crucible.core.views.backends import BackendCheckView, BackendDisconnectView, BackendSettingsView
from crucible.core.views.catalog import PriceView
from crucible.core.views.compute import BackendView, MachineView
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage
from crucible.settings import Settings, load_settings

MAX_JOBS = 1_000_000
SIMULATED = "The job runs on a simulated backend: its machines are local processes, and its costs are not real."


class SyncMLPlatform:
    """A server: the named one, or the embedded one of this computer, which is started when first needed.

    `server` and `token` are as in `crucible --server` and $CRUCIBLE_TOKEN. May be used by several threads.
    """

    def __init__(
        self, server: str | None = None, *, token: str | None = None, settings: Settings | None = None
    ) -> None:
        flags = {name: value for name, value in (("server", server), ("token", token)) if value is not None}
        self._settings = settings or load_settings(flags)
        self._api: Api | None = None
        self._lock = threading.Lock()

    @property
    def api(self) -> Api:
        """The routes as typed methods; finds or starts the server at first use."""
        with self._lock:
            if self._api is None:
                self._api = connect(self._settings, make_embedded(self._settings, __version__, os.environ))
            return self._api

    def close(self) -> None:
        """Close connections; jobs go on."""
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
        **more: Unpack[SubmitOptions],
    ) -> SyncJob:
        """Submit a job: code, a file, a folder, a repository, a notebook, a function or a model (see `SubmitOptions`).

        The job is stored when this returns.
        """
        keywords = {"code": code, "requirements": requirements, "preferences": preferences, **more}
        return self.submit_job(*read_keywords(SubmitHost.current(), **keywords))

    def submit_job(self, source: CodeSource, fields: PartialSpec, goal: Goal) -> SyncJob:
        """Submit what `read_keywords` returned (default backend: the setting `places`, else the best ranked)."""
        with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
            spec, payload = self._build_job(source, fields, Path(scratch))
            order = (spec.backend, *spec.fallback) if spec.backend else None
            if order is None and not goal.allowed_backends:
                order = self._settings.places.value or None
            ranking = rank_backends(self.backends(), spec, goal, order)
            if ranking.is_simulated:
                warnings.warn(SIMULATED, stacklevel=3)
            spec = spec.model_copy(update={"backend": ranking.names[0], "fallback": ranking.names[1:]})
            return SyncJob(self, submit(self.api, spec, payload, Path(scratch)))

    def recommend(
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
        return self.plan_job(*read_keywords(SubmitHost.current(), **keywords))

    def plan_job(self, source: CodeSource, fields: PartialSpec, goal: Goal) -> PlanView:
        """Return the plan for what `read_keywords` returned."""
        with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
            spec, payload = self._build_job(source, fields, Path(scratch))
            return self.api.plan(plan_request(spec, payload, goal))

    def _build_job(self, source: CodeSource, fields: PartialSpec, scratch: Path) -> tuple[JobSpec, Payload]:
        payload, fields = self.load(source, fields, scratch)
        fields = merge({"project": self._settings.project.value}, fields)
        return make_spec({**fields, **payload.fields()}), payload

    def load(self, source: CodeSource, fields: PartialSpec, scratch: Path) -> tuple[Payload, PartialSpec]:
        """Return the code or model to send, and the fields with what a model adds; warn of what is left out."""
        limited = replace(source, scratch=scratch, limit=self._settings.bundle_limit.value)
        payload, fields = build_payload(limited, fields)
        for note in (*payload.left_out, *payload.notes):
            warnings.warn(note, stacklevel=5)
        return payload, fields

    def backends(self) -> tuple[BackendView, ...]:
        return self.api.compute.backends()

    def backend(self, name: str) -> BackendSettingsView:
        """Return a backend's settings, with their values and where each comes from; for operators of the server."""
        return self.api.compute.backend(name)

    def check_backend(self, name: str, /, **settings: object) -> BackendCheckView:
        """Check a backend as it would be with these settings, without connecting it."""
        return self.api.compute.check_backend(name, settings)

    def connect_backend(self, name: str, /, **settings: object) -> BackendCheckView:
        """Connect a backend, or change its settings, if its check finds nothing wrong; None removes a setting."""
        return self.api.compute.connect_backend(name, settings)

    def disconnect_backend(self, name: str) -> BackendDisconnectView:
        """Place no jobs on a backend any more; it is disconnected once its machines are gone."""
        return self.api.compute.disconnect_backend(name)

    def job(self, id: str) -> SyncJob:
        """Return a job by id, short id, id suffix of three or more characters, `last`, or else name (the newest)."""
        return SyncJob(self, find_job(self.api, _job_ref(id)))

    def jobs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        active: bool = False,
        name: str | None = None,
        tags: str | Sequence[str] | None = None,
        limit: int = 50,
    ) -> list[SyncJob]:
        """Return the newest jobs, at most `limit`, with exactly this name and all of these tags."""
        check_number("limit", limit, 1, MAX_JOBS, whole=True)
        fields = {"status": check_names("status", status), "named": name, "tag": check_names("tags", tags)}
        return [SyncJob(self, view) for view in iterate_jobs(self.api, _filter(fields, active=active), limit)]

    def machines(self, *, all: bool = False) -> tuple[MachineView, ...]:
        """Return the machines in use, with purpose and cost; `all` adds those that are gone."""
        return self.api.compute.machines(all=all)

    def catalog(self, wanted: OfferFilter | None = None) -> list[PriceView]:
        """Return the offers, cheapest first, including those of unconnected providers (`runnable`, `why`)."""
        return list(self.api.catalog.walk(wanted))

    def predictions(self, *, limit: int = 50) -> PredictionPage:
        """Return predicted and actual run times of jobs, newest first, and the accuracy of all that count."""
        check_number("limit", limit, 1, MAX_JOBS, whole=True)
        return self.api.newest_predictions(limit)


def _filter(fields: Mapping[str, object], *, active: bool) -> JobFilter:
    """Return the filter. Raises BadInput, and UnknownName for an unknown status."""
    values = {key: value for key, value in fields.items() if value is not None}
    try:
        filter = JobFilter.model_validate({**values, "active": active})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = {"named": "name", "tag": "tags"}.get(str(first["loc"][0]), str(first["loc"][0]))
        rule = broken_rule(first) or f"cannot be used: {first['msg']}"
        raise invalid_value(field, values.get(str(first["loc"][0])), rule) from error
    filter.states(), filter.tags  # both raise for values that the server would refuse
    return filter


def _job_ref(id: object) -> str:
    named = check_text("id", id).strip()
    if not named:
        raise BadInput("A job is named by its id.", fix="`crucible jobs` lists them.", field="id")
    return named
