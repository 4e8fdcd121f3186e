"""A fake backend with settings of its own, for tests of connecting: a key, a region, hosts.

tests/backends/vendor has one with the behaviour of a cloud.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.control.fakes import FakeBackend

from crucible.backends.base import Backend, Capabilities, Finding, NotInstalled, OnDemand, Reach
from crucible.backends.registry import ROWS, BackendRow
from crucible.backends.settings import BackendSettings, SecretValue, setting
from crucible.control.connections.factory import BackendFactory
from crucible.core.errors import Unreachable
from crucible.core.secret import Secret

KEY = "hunter2-the-key"


class MoonSettings(BackendSettings):
    """Machines on the moon."""

    api_key: SecretValue = setting(description="Key of the account.", variables=("MOON_KEY",))
    region: str = setting("tranquility", description="Where the machines are.")
    hosts: tuple[str, ...] = setting((), description="Computers to use.")
    most: int | None = setting(None, description="Maximum number of machines.")


@dataclass
class MoonBackend(FakeBackend):
    """A backend of the provider. `account`: what really exists, whatever process asks."""

    name: str = "moon"
    capabilities: Capabilities = Capabilities(reach=Reach.INTERNET, capacity=OnDemand(), bills=True, settle_window=0.0)
    rate: int = 1_500_000
    settings: MoonSettings = field(default_factory=lambda: MoonSettings(api_key=Secret(KEY)))
    moon: Moon = field(default_factory=lambda: Moon())

    def check(self) -> Sequence[Finding]:
        self.moon.checked.append(self.settings)
        key = self.settings.api_key.reveal()
        if self.moon.unreachable:
            raise Unreachable(f"The moon does not answer to {key}.", why=f"It was asked with {key}.", fix="Wait.")
        found = [Finding(f"the region {self.settings.region} exists"), *self.moon.warnings]
        return [*found, Finding("the key is valid", key.startswith("hunter2"), f"{key} is refused", "Get another key.")]

    def clean_up(self) -> Sequence[Finding]:
        self.moon.cleaned.append(self.settings.region)
        if self.moon.unreachable:
            raise Unreachable(
                f"The moon does not answer to {self.settings.api_key.reveal()}.", fix="Remove it by hand."
            )
        return [Finding("removed the dust")]


@dataclass
class Moon:
    """The provider. Backends that processes make share its machines."""

    capabilities: Capabilities | None = None
    unreachable: bool = False
    installed: bool = True
    machines: dict[str, Any] = field(default_factory=dict)
    made: list[MoonSettings] = field(default_factory=list)
    checked: list[MoonSettings] = field(default_factory=list)
    cleaned: list[str] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def make(self, settings: BackendSettings) -> Backend:
        assert isinstance(settings, MoonSettings)
        if not self.installed:
            raise NotInstalled("The backend 'moon' is not installed.", fix="Run: pip install moon", backend="moon")
        self.made.append(settings)
        backend = MoonBackend(settings=settings, moon=self, made=self.machines)
        return backend if self.capabilities is None else replace(backend, capabilities=self.capabilities)

    def factory(self, backends: Mapping[str, Backend], **more: Any) -> BackendFactory:
        """Return the factory of a process with these backends besides the moon's."""

        def make(name: str, settings: BackendSettings) -> Backend:
            if name == "moon":
                return self.make(settings)
            return backends.get(name) or FakeBackend(name)

        row = BackendRow("tests.control.moon:MoonBackend", "pip install moon", "tests.control.moon:MoonSettings")
        return BackendFactory(make, rows={**ROWS, "moon": row}, **more)
