"""Places that run jobs, and the machines there, over the API."""

from __future__ import annotations

from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.placeviews import BackendPage, BackendView, MachinePage, MachineView, OrphanPage, OrphanView
from crucible.client.transport import Query, Transport

ORPHANS_SECONDS = 120.0
"""Every place is asked."""


class Places:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def backends(self) -> tuple[BackendView, ...]:
        return self.page().items

    def page(self) -> BackendPage:
        """Those of the server, and the others that are known, each with what connects it."""
        return read(BackendPage, self._transport.request("GET", "/api/v1/backends"))

    def machines(self, *, all: bool = False) -> tuple[MachineView, ...]:
        query: Query = {"all": "true" if all else None}
        return read(MachinePage, self._transport.request("GET", "/api/v1/machines", query=query)).items

    def orphans(self) -> tuple[OrphanView, ...]:
        """Machines at our places that carry our tag and that we do not know, or that should be gone."""
        response = self._transport.request("GET", "/api/v1/machines/orphans", seconds=ORPHANS_SECONDS)
        return read(OrphanPage, response).items

    def terminate(self, ref: str) -> MachineView:
        """End a machine, or an orphan by the provider's id; asking again is harmless."""
        path = f"/api/v1/machines/{quote(ref, safe='')}/terminate"
        return read(MachineView, self._transport.request("POST", path, repeat=True))
