"""Backends: those that are connected, with their offers, and those that could be."""

from __future__ import annotations

from crucible.control.connecting import unconnected, why_unconnected
from crucible.control.places import Places
from crucible.control.views import View, backend_view


class Backends:
    def __init__(self, places: Places) -> None:
        self._places = places

    async def list_backends(self) -> list[View]:
        return [backend_view(self._places.backend(name), self._places.offers(name)) for name in self._places.names()]

    async def list_unconnected(self) -> list[View]:
        """Return known backends that are not connected, each with what would connect it."""
        names = self._places.names()
        return [{"name": name, "why": f"{why_unconnected(name, names)}."} for name in unconnected(names)]
