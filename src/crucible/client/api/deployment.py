"""Backends and machines, the catalog, models, training tasks, and maintenance."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

from pydantic import TypeAdapter

from crucible.client.api import routes
from crucible.client.api.resource import Resource
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.job.models import ModelOrder
from crucible.core.views.backends import BackendCheckView, BackendDisconnectView, BackendSettingsView
from crucible.core.views.catalog import (
    GpuView,
    PriceAuditView,
    PriceComparisonView,
    PricePage,
    PriceView,
    RefreshView,
    TypeView,
)
from crucible.core.views.compute import BackendPage, BackendView, MachineView, OrphanView
from crucible.core.views.jobs import JobView
from crucible.core.views.server import BackupView, ConfirmedView, ModelView, PruneView
from crucible.core.views.training import TaskView

PAGE = 500

BackendSettings = Mapping[str, object]
"""Settings of a backend by name."""

_ENDED: TypeAdapter[MachineView | OrphanView] = TypeAdapter(MachineView | OrphanView)


class ComputeApi(Resource):
    """Backends and their machines."""

    def backends(self) -> tuple[BackendView, ...]:
        return self.backends_page().items

    def backends_page(self) -> BackendPage:
        """Return the connected backends, and the known others, each with how to connect it."""
        return self._call(routes.BACKENDS)

    def backend(self, name: str) -> BackendSettingsView:
        """Return a backend's settings, with their values and where each comes from."""
        return self._call(routes.BACKEND, backend=name)

    def check_backend(self, name: str, settings: BackendSettings | None = None) -> BackendCheckView:
        """Check a backend as it would be with these settings; changes nothing."""
        return self._call(routes.CHECK_BACKEND, body={"settings": dict(settings or {})}, backend=name)

    def connect_backend(self, name: str, settings: BackendSettings | None = None) -> BackendCheckView:
        """Connect a backend, or change its settings, if its check finds nothing wrong; None removes a setting."""
        return self._call(routes.CONNECT_BACKEND, body={"settings": dict(settings or {})}, backend=name)

    def disconnect_backend(self, name: str) -> BackendDisconnectView:
        """Place no jobs on a backend any more; it is disconnected once its machines are gone."""
        return self._call(routes.DISCONNECT_BACKEND, backend=name)

    def machines(self, *, all: bool = False) -> tuple[MachineView, ...]:
        return self._call(routes.MACHINES, query={"all": "true" if all else None}).items

    def orphans(self) -> tuple[OrphanView, ...]:
        """Return machines that carry the deployment's tag and are unknown to it, or that should be gone."""
        return self._call(routes.ORPHANS).items

    def terminate(self, ref: str, *, lost: bool = False) -> MachineView | OrphanView:
        """Terminate a machine, or an orphan by the provider's id; idempotent.

        `lost`: its provider does not answer and never will, so that it counts as gone at once.
        """
        query = {"lost": "true" if lost else None}
        return _ENDED.validate_json(self._send(routes.TERMINATE, query=query, machine=ref).content)


class CatalogApi(Resource):
    """Offers and their prices."""

    def page(self, filter: OfferFilter | None = None, *, limit: int = 50, cursor: str | None = None) -> PricePage:
        """Return offers that match, cheapest first."""
        filters = (filter or OfferFilter()).model_dump(mode="json", exclude_defaults=True)
        return self._call(routes.CATALOG, query={**filters, "limit": limit, "cursor": cursor})

    def walk(self, filter: OfferFilter | None = None, *, cursor: str | None = None) -> Iterator[PriceView]:
        """Yield all offers that match; `cursor` is the `next` of an earlier page."""
        while True:
            page = self.page(filter, limit=PAGE, cursor=cursor)
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def type(self, name: str) -> TypeView:
        return self._call(routes.CATALOG_TYPE, type=name)

    def gpus(self) -> tuple[GpuView, ...]:
        return self._call(routes.CATALOG_GPUS).items

    def audit(self) -> PriceAuditView:
        """Return the problems of the prices in use."""
        return self._call(routes.CATALOG_AUDIT)

    def refresh(self, provider: str, regions: Sequence[str] = ()) -> RefreshView:
        """Have the server fetch a provider's prices (default: of all its known regions)."""
        return self._call(routes.CATALOG_REFRESH, body={"provider": provider, "regions": list(regions)})

    def compare(self, table: bytes, *, provider: str | None = None, over: float = 10.0) -> PriceComparisonView:
        """Compare the prices in use with another table (CSV); reports those that differ by more than `over` percent."""
        return self._call(
            routes.CATALOG_COMPARE,
            content=table,
            headers={"Content-Type": "text/csv"},
            query={"provider": provider, "over": over},
        )


class Models(Resource):
    """Model plugins that the server offers."""

    def list_models(self) -> tuple[ModelView, ...]:
        """Return all models; broken ones have `error`."""
        return self._call(routes.MODELS).items

    def get(self, name: str) -> ModelView:
        return self._call(routes.MODEL, name=name)

    def submit(self, order: ModelOrder, job: Mapping[str, object] | None = None, *, key: str | None = None) -> JobView:
        """Submit a job that trains a model, predicts with it or evaluates it. `job`: fields of a spec, as `backend`."""
        body = {
            "method": order.method,
            "config": order.config,
            "inputs": order.inputs,
            "callbacks": list(order.callbacks),
            "job": dict(job or {}),
        }
        return self._call(routes.SUBMIT_MODEL, body=body, headers=idempotency(key), name=order.model)


class Training(Resource):
    """Training tasks of tenants."""

    def orchestrate(self, task: Mapping[str, object], *, key: str | None = None) -> TaskView:
        """Submit a task once: `key` makes it one job however often the request is retried."""
        return self._call(routes.ORCHESTRATE, body=task, headers=idempotency(key))

    def status(self, task_id: str) -> TaskView:
        return self._call(routes.TASK_STATUS, query={"task_id": task_id})


class Maintenance(Resource):
    def prune(self, *, older_than: float | None = None, dry_run: bool = False) -> PruneView:
        """Remove what retention allows, older than this many seconds (default: the server's setting)."""
        return self._call(routes.PRUNE, body={"older_than_seconds": older_than, "dry_run": dry_run})

    def backup(self, path: str) -> BackupView:
        """Copy the database to a new file; `path` is absolute, on the server's disk."""
        return self._call(routes.BACKUP, body={"path": path})

    def confirm_restore(self) -> ConfirmedView:
        return self._call(routes.CONFIRM_RESTORE)


def idempotency(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid.uuid4().hex}
