"""The model plugins of one Python that the server is told of: listed, checked and made into jobs, never imported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from crucible.control.ports import Clock
from crucible.control.views import View
from crucible.core import models
from crucible.core.errors import BadInput, NotFound
from crucible.core.models import Order
from crucible.core.spec import EnvironmentSpec, JobSpec, Source, SourceKind
from crucible.wire.asking import NoAnswer
from crucible.wire.options import BadConfig, check_config
from crucible.wire.plugins import Plugin, describe_all

KEPT_SECONDS = 30.0
"""How long a description is good: packages are installed seldom, and describing them takes seconds."""
DECIDED = ("command", "kind", "shape", "bundle", "in_place", "environment", "source", "rerun_of")


@dataclass(frozen=True)
class ModelsPython:
    """`python` None: this server offers no models. `environ` is what its processes may see a part of."""

    python: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


class Models:
    def __init__(self, source: ModelsPython, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known: tuple[float, tuple[Plugin, ...]] | None = None

    async def listed(self) -> list[View]:
        """All of them, the broken ones with their faults; none where the server has no Python for models."""
        return [plugin.as_json() for plugin in await self._all()]

    async def one(self, name: str) -> View:
        """Raises NotFound."""
        return (await self._named(name)).as_json()

    async def spec(self, order: Order, job: Mapping[str, object]) -> JobSpec:
        """The job that does it; `job` are fields of a spec. Raises NotFound, and BadInput for what does not fit."""
        plugin = await self._named(order.model)
        if plugin.fault is not None:
            package = f"{plugin.distribution} {plugin.distribution_version}"
            raise models.broken(plugin.name, plugin.fault.text, plugin.fault.traceback, package, plugin.python)
        if order.method not in plugin.methods:
            raise models.no_method(plugin.name, order.method, plugin.methods)
        try:
            check_config(plugin.schema, order.config)
        except BadConfig as error:
            raise models.wrong_config(plugin.name, error.problems) from error
        return _spec(order, plugin, job)

    async def _named(self, name: str) -> Plugin:
        known = await self._all()
        found = next((plugin for plugin in known if plugin.name == name), None)
        if found is None:
            unknown = models.not_offered(name, [plugin.name for plugin in known], "GET /api/v1/models lists them.")
            raise NotFound(unknown.what, fix=unknown.fix, meant=unknown.meant)
        return found

    async def _all(self) -> tuple[Plugin, ...]:
        python = self._source.python
        if python is None:
            return ()
        async with self._asking:
            now = self._clock.now()
            if self._known is None or not 0 <= now - self._known[0] < KEPT_SECONDS:
                try:
                    found = await asyncio.to_thread(describe_all, python, self._source.environ)
                except NoAnswer as error:
                    raise models.not_asked(python, str(error), error.words) from error
                self._known = (now, found)
            return self._known[1]


def _spec(order: Order, plugin: Plugin, job: Mapping[str, object]) -> JobSpec:
    decided = next((name for name in DECIDED if name in job), None)
    if decided is not None:
        raise BadInput(f"The field {decided!r} of the job is the model's.", fix="Leave it out.", field=f"job.{decided}")
    said = {"name": order.model, **_sized(plugin, job)}
    try:
        return JobSpec.model_validate(
            {
                **said,
                "command": order.command,
                "kind": order.kind,
                "environment": EnvironmentSpec(interpreter=plugin.python, origin="the server's Python for models"),
                "source": Source(kind=SourceKind.PLUGIN, ref=f"{plugin.distribution}=={plugin.distribution_version}"),
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in ("job", *first["loc"]))
        raise BadInput(f"The field {where!r} is not right: {first['msg']}.", fix=f"Change {where!r}.") from error


def _sized(plugin: Plugin, job: Mapping[str, object]) -> dict[str, object]:
    """The job with the GPU memory that the model says it needs, unless it has a size."""
    given = job.get("resources")
    resources = dict(given) if isinstance(given, Mapping) else {}
    needs = models.gpu_needs(plugin.min_gpu_memory_gb)
    if not needs or job.get("tier") or set(needs) & set(resources) or (given and not resources):
        return dict(job)
    return {**job, "resources": {**resources, **needs}}
