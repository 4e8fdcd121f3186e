"""Backends: connected ones with their offers, and known others."""

from __future__ import annotations

from crucible.control.jobs.views import backend_view
from crucible.control.scheduling.backends import ConnectedBackends, list_unconnected, why_unconnected
from crucible.core.views.compute import BackendPage, OtherBackendView


class Backends:
    def __init__(self, backends: ConnectedBackends) -> None:
        self._backends = backends

    async def list_backends(self) -> BackendPage:
        """Return connected backends with their offers; `others` has known ones, each with how to connect it."""
        backends, names = self._backends, self._backends.names()
        return BackendPage(
            items=tuple(backend_view(backends.get(name), backends.offers(name)) for name in names),
            others=tuple(
                OtherBackendView(name=name, why=f"{why_unconnected(name, names)}.") for name in list_unconnected(names)
            ),
        )
