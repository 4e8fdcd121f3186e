"""Model plugins of the server's Python for models: listed, checked and turned into jobs, never imported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakValueDictionary

from pydantic import ValidationError

from crucible.control.runtime.ports import Clock
from crucible.core.errors import BadInput, NotFound
from crucible.core.fields import EXTRA, suggest_field
from crucible.core.job import models
from crucible.core.job.models import ModelOrder
from crucible.core.job.spec import EnvironmentSpec, JobSpec, Source, SourceKind
from crucible.core.patterns import broken_rule
from crucible.core.people.identity import Identity
from crucible.core.views.server import ModelPage, ModelView
from crucible.wire.models.options import BadConfig, check_config
from crucible.wire.models.plugins import AT_ONCE, ModelNotFound, Plugin, describe_all, describe_one
from crucible.wire.models.subprocess_rpc import RpcError

T = TypeVar("T")

ASK_SECONDS = 25.0
"""Shorter than clients wait for a response, so that they learn which plugin hangs instead of timing out."""
CACHE_SECONDS = 30.0
"""How long descriptions are cached: packages change rarely, and describing them takes seconds."""
SET_BY_MODEL = ("command", "kind", "shape", "bundle", "in_place", "environment", "source", "rerun_of")


@dataclass(frozen=True)
class ModelsPython:
    """`python` is None if this server offers no models. Its processes get a part of `environ`."""

    python: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


class Models:
    def __init__(self, source: ModelsPython, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._locks: WeakValueDictionary[str | None, asyncio.Lock] = WeakValueDictionary()
        """By model (None: the list), so that one request describes it and others wait. Weak, so that unused ones go."""
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._plugins: dict[str, tuple[float, Plugin]] = {}
        """By name, with the time of description."""
        self._list: tuple[float, tuple[Plugin, ...]] | None = None

    async def list_models(self, who: Identity) -> ModelPage:
        """Return all models, broken ones with their error; empty if the server has no Python for models."""
        who.require_submitter()
        plugins = await self._describe_all() if self._source.python is not None else ()
        return ModelPage(items=tuple(map(model_view, plugins)))

    async def get(self, who: Identity, name: str) -> ModelView:
        """Return one model. Raises NotFound."""
        who.require_submitter()
        return model_view(await self._find(name))

    async def job_spec(self, who: Identity, order: ModelOrder, job: Mapping[str, object]) -> JobSpec:
        """Return the spec of a job that carries out `order`, with the fields `job`. Raises NotFound, BadInput."""
        who.require_submitter()
        plugin = await self._find(order.model)
        if plugin.problem is not None:
            package = f"{plugin.distribution} {plugin.distribution_version}"
            raise models.broken_model(
                plugin.name, plugin.problem.text, plugin.problem.traceback, package, plugin.python
            )
        if order.method not in plugin.methods:
            raise models.no_method(plugin.name, order.method, plugin.methods)
        try:
            check_config(plugin.schema, order.config)
        except BadConfig as error:
            raise models.wrong_config(plugin.name, error.problems) from error
        return _spec(order, plugin, job)

    async def _find(self, name: str) -> Plugin:
        if self._source.python is None:
            raise _not_found(name, ())
        return await self._describe(name)

    async def _describe(self, name: str) -> Plugin:
        """Describe one model in a process of its own, so that one that hangs does not delay the others."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            kept = self._fresh(self._plugins.get(name)) or self._in_list(name)
            if kept is not None:
                return kept
            try:
                plugin = await self._ask(lambda python, environ: describe_one(name, python, environ, ASK_SECONDS))
            except ModelNotFound as error:
                raise _not_found(name, error.known) from error
            self._plugins[name] = (self._clock.now(), plugin)
            return plugin

    def _in_list(self, name: str) -> Plugin | None:
        plugins = self._fresh(self._list) or ()
        return next((plugin for plugin in plugins if plugin.name == name), None)

    async def _describe_all(self) -> tuple[Plugin, ...]:
        async with self._locks.setdefault(None, asyncio.Lock()):
            kept = self._fresh(self._list)
            if kept is None:
                kept = await self._ask(lambda python, environ: describe_all(python, environ, ASK_SECONDS))
                self._list = (self._clock.now(), kept)
            return kept

    def _fresh(self, kept: tuple[float, T] | None) -> T | None:
        """Return the cached value if it is recent enough, counted from when the description arrived."""
        return kept[1] if kept is not None and 0 <= self._clock.now() - kept[0] < CACHE_SECONDS else None

    async def _ask(self, describe: Callable[[str, Mapping[str, str]], T]) -> T:
        python = self._source.python
        assert python is not None, "both callers have checked that"
        async with self._slots:
            try:
                return await asyncio.to_thread(describe, python, self._source.environ)
            except RpcError as error:
                raise models.cannot_list_models(python, str(error), error.stderr) from error


def model_view(plugin: Plugin) -> ModelView:
    fault, schema = plugin.problem, plugin.schema
    return ModelView(
        name=plugin.name,
        title=plugin.title,
        version=plugin.version,
        description=plugin.description,
        framework=plugin.framework,
        entry=plugin.entry,
        distribution=plugin.distribution,
        distribution_version=plugin.distribution_version,
        python=plugin.python,
        min_gpu_memory_gb=plugin.min_gpu_memory_gb,
        methods=plugin.methods,
        schema=None if schema is None else {name: option.as_json() for name, option in schema.items()},
        error=None if fault is None else {"text": fault.text, "traceback": fault.traceback},
    )


def _not_found(name: str, known: Sequence[str]) -> NotFound:
    unknown = models.unknown_model(name, list(known), "GET /api/v1/models lists them.")
    return NotFound(unknown.what, fix=unknown.fix, meant=unknown.meant)


def _spec(order: ModelOrder, plugin: Plugin, job: Mapping[str, object]) -> JobSpec:
    decided = next((name for name in SET_BY_MODEL if name in job), None)
    if decided is not None:
        raise BadInput(f"The model sets the field {decided!r} of the job.", fix="Leave it out.", field=f"job.{decided}")
    fields = {"name": order.model, **_with_gpu_memory(plugin, job)}
    try:
        return JobSpec.model_validate(
            {
                **fields,
                "command": order.command,
                "kind": order.kind,
                "environment": EnvironmentSpec(interpreter=plugin.python, origin="the server's Python for models"),
                "source": Source(kind=SourceKind.PLUGIN, ref=f"{plugin.distribution}=={plugin.distribution_version}"),
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in ("job", *first["loc"]))
        if first["type"] == EXTRA:
            raise BadInput(
                f"There is no field {where!r}.", fix=suggest_field(JobSpec, first["loc"]), field=where
            ) from error
        rule = broken_rule(first)
        wrong = f"it {rule}" if rule else first["msg"]
        raise BadInput(f"The field {where!r} is not right: {wrong}.", fix=f"Change {where!r}.") from error


def _with_gpu_memory(plugin: Plugin, job: Mapping[str, object]) -> dict[str, object]:
    """Return the job with the GPU memory that the model declares, unless the job has a size of its own."""
    requested = job.get("resources")
    resources = dict(requested) if isinstance(requested, Mapping) else {}
    needs = models.gpu_needs(plugin.min_gpu_memory_gb)
    if not needs or job.get("tier") or set(needs) & set(resources) or (requested and not resources):
        return dict(job)
    return {**job, "resources": {**resources, **needs}}
