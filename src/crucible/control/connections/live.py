"""The table of the backends that this process is connected to, which changes while it runs."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, replace
from types import MappingProxyType

from crucible.backends.base import Backend
from crucible.backends.settings import BackendSettings
from crucible.core.secret import Secret

NO_SETTINGS = BackendSettings()


@dataclass(frozen=True)
class LiveBackend:
    """A connected backend. `closing`: it is being disconnected, so nothing new is placed there."""

    backend: Backend
    settings: BackendSettings = NO_SETTINGS
    closing: bool = False


class LiveBackends(Mapping[str, Backend]):
    """The connected backends by name, with their settings. `ConnectionSync` changes them.

    Each change replaces the mapping, so other threads may read it meanwhile.
    """

    def __init__(self, backends: Mapping[str, Backend] = MappingProxyType({})) -> None:
        self._live: Mapping[str, LiveBackend] = {name: LiveBackend(backend) for name, backend in backends.items()}
        self.revision = 0
        """Counts the changes."""

    @classmethod
    def wrap(cls, backends: Mapping[str, Backend]) -> LiveBackends:
        return backends if isinstance(backends, LiveBackends) else cls(backends)

    def __getitem__(self, name: str) -> Backend:
        return self._live[name].backend

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._live))

    def __len__(self) -> int:
        return len(self._live)

    def items(self) -> ItemsView[str, Backend]:
        """Return the backends as they are now; a loop over them is not disturbed by changes."""
        return self.snapshot().items()

    def values(self) -> ValuesView[Backend]:
        return self.snapshot().values()

    def snapshot(self) -> dict[str, Backend]:
        return {name: live.backend for name, live in self._live.items()}

    def put(self, name: str, backend: Backend, settings: BackendSettings, *, closing: bool) -> None:
        self._replace({**self._live, name: LiveBackend(backend, settings, closing)})

    def set_closing(self, name: str, closing: bool) -> None:
        if name in self._live and self._live[name].closing != closing:
            self._replace({**self._live, name: replace(self._live[name], closing=closing)})

    def drop(self, name: str) -> Backend | None:
        """Remove the backend, and return it."""
        known = self._live.get(name)
        self._replace({other: live for other, live in self._live.items() if other != name})
        return None if known is None else known.backend

    def is_closing(self, name: str) -> bool:
        live = self._live.get(name)
        return live is not None and live.closing

    def projects(self, name: str) -> tuple[str, ...]:
        """Return the projects that may use the backend; empty if its settings name none."""
        live = self._live.get(name)
        return () if live is None else live.settings.projects

    def secrets(self, name: str) -> tuple[Secret, ...]:
        """Return the secrets in the backend's settings."""
        live = self._live.get(name)
        return () if live is None else tuple(live.settings.secrets().values())

    def _replace(self, live: Mapping[str, LiveBackend]) -> None:
        self._live = live
        self.revision += 1
