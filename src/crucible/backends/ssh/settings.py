"""The settings of the backend `ssh`. Imports nothing heavy, as settings are read before the backend is."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from crucible.backends.settings import BackendSettings, setting
from crucible.core.compute.resources import GiB

_TARGET = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class SshHost(BaseModel):
    """One host. `target`: `user@box`, `user@box:port`, or a name of the ssh config of the server's user.

    `max_attempts`: how many attempts may run there at once (default: as many as fit). `node`: the identity of the
    computer, if the one that it reports is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    max_attempts: Annotated[int, Field(ge=1)] | None = None
    node: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"target": value} if isinstance(value, str) else value

    @model_serializer(mode="plain")
    def _to_text(self) -> str | dict[str, object]:
        """Return the target alone, as users write it, where nothing else is set."""
        more = {"max_attempts": self.max_attempts, "node": self.node}
        found = {name: value for name, value in more.items() if value is not None}
        return {"target": self.target, **found} if found else self.target

    @field_validator("target")
    @classmethod
    def _check_target(cls, value: str) -> str:
        found = _TARGET.fullmatch(value)
        if not found or int(found["port"] or 1) not in range(1, 65536):
            raise ValueError(
                f"{value[:80]!r} is not the name of a host. Write user@box, user@box:port, or a name of an ssh config."
            )
        return value

    @field_validator("node")
    @classmethod
    def _check_node(cls, value: str | None) -> str | None:
        if value is not None and not _NODE.fullmatch(value):
            raise ValueError(
                f"{value[:80]!r} cannot name a node. Use up to 64 letters, digits, dots, dashes and underscores."
            )
        return value

    @property
    def name(self) -> str:
        """What users call the host: the target without user and port."""
        return self._part("host").strip("[]")

    @property
    def user(self) -> str:
        return self._part("user")

    @property
    def port(self) -> str:
        return self._part("port")

    def _part(self, part: str) -> str:
        found = _TARGET.fullmatch(self.target)
        return (found[part] or "") if found else ""


class SshSettings(BackendSettings):
    """The hosts, and how they are used."""

    hosts: tuple[SshHost, ...] = setting(
        description="The hosts: user@box, user@box:port, or names of the ssh config of the server's user."
    )
    config: str | None = setting(None, description="The ssh config to use (default: that of the server's user).")
    cache_bytes: Annotated[int, Field(ge=0)] = setting(
        20 * GiB, description="The size up to which caches are kept on a host after its last job."
    )

    @field_validator("hosts")
    @classmethod
    def _check_twice(cls, value: tuple[SshHost, ...]) -> tuple[SshHost, ...]:
        targets = [host.target for host in value]
        twice = next((target for target in targets if targets.count(target) > 1), None)
        if twice:
            raise ValueError(f"The host {twice!r} is listed twice.")
        return value
