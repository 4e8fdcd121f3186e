"""Make the backends of one process, from the settings of several sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from crucible.backends import registry
from crucible.backends.base import Backend
from crucible.backends.context import BackendContext
from crucible.backends.registry import ROWS, BackendRow
from crucible.backends.settings import (
    BackendSettings,
    FilledSettings,
    SettingField,
    describe,
    environment_source,
    fill,
)
from crucible.core.errors import Trouble
from crucible.core.settings_source import SettingsSource

STORED = "crucible backends connect"
"""The origin of settings that are stored in the database."""

Make = Callable[[str, BackendSettings], Backend]


def _cannot_make(name: str, settings: BackendSettings) -> Backend:
    raise Trouble(f"This process cannot connect {name}.", fix="Start it as a server.")


@dataclass(frozen=True)
class BackendFactory:
    """Makes the backends of this process. Without `make` it only describes them."""

    make: Make = _cannot_make
    configured: tuple[str, ...] = ()
    """The backends in the setting `backends`, which are always connected."""
    configured_by: str = ""
    """The source of that setting."""
    tables: Mapping[str, SettingsSource] = field(default_factory=dict, repr=False)
    """The settings in the user's configuration file, by backend."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The server's variables."""
    rows: Mapping[str, BackendRow] = field(default_factory=lambda: ROWS)

    @property
    def can_make(self) -> bool:
        return self.make is not _cannot_make

    def model(self, name: str) -> type[BackendSettings]:
        """Return the model of the backend's settings. Raises UnknownName, NotInstalled."""
        return registry.settings_model(name, self.rows)

    def fields(self, name: str) -> tuple[SettingField, ...]:
        return describe(name, self.model(name))

    def fill(
        self,
        name: str,
        stored: Mapping[str, object] = MappingProxyType({}),
        requested: Mapping[str, object] | None = None,
    ) -> FilledSettings[BackendSettings]:
        """Return the settings in effect: `stored` ones, those `requested` by a user, then file and environment.

        Raises UnknownName, MissingSettings, BadInput, NotInstalled.
        """
        model = self.model(name)
        sources = [SettingsSource(STORED, stored), SettingsSource("the request", requested or {})]
        return fill(name, model, [*sources, *self.overriding_sources(name)])

    def overriding_sources(self, name: str) -> Iterator[SettingsSource]:
        """Yield the sources that override what is stored."""
        if name in self.tables:
            yield self.tables[name]
        yield environment_source(name, self.model(name), self.environ)

    def install_command(self, name: str) -> str:
        return self.rows[name].install


def make_with(context: BackendContext[Any], rows: Mapping[str, BackendRow] = ROWS) -> Make:
    """Return a function that makes backends in this context, each with its own settings."""
    return lambda name, settings: registry.get_backend(name, replace(context, settings=settings), rows)
