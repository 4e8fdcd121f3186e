"""Dependencies of routes: the control plane, the caller, and facts about this server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path
from starlette.requests import HTTPConnection

from crucible.control import control_plane
from crucible.control.agents.agents import Agents
from crucible.core.patterns import SHA256_PATTERN
from crucible.core.people.identity import NOBODY, Identity
from crucible.server.security.auth import IDENTITY
from crucible.server.security.size_limits import MAX_BUNDLE


@dataclass(frozen=True)
class ServerInfo:
    """Facts about this server: `nonce` differs for each run, `on_stop` asks the server to stop."""

    nonce: str
    version: str
    home: str
    agents_url: str
    on_stop: Callable[[], None]
    bundle_limit: int = MAX_BUNDLE
    started_at: str = ""
    secure: bool = False
    """Clients connect over TLS, to this server or to a proxy in front of it."""
    public_url: str = ""
    """Its URL for other computers; empty if they cannot reach it."""


async def _who(connection: HTTPConnection) -> Identity:
    """Return the caller; on open paths it is NOBODY, who has no permissions."""
    return connection.scope.get(IDENTITY) or NOBODY


async def _control(connection: HTTPConnection) -> control_plane.ControlPlane:
    control: control_plane.ControlPlane = connection.app.state.control
    return control


async def _agents(connection: HTTPConnection) -> Agents:
    agents: Agents = connection.app.state.control
    return agents


async def _server_info(connection: HTTPConnection) -> ServerInfo:
    about: ServerInfo = connection.app.state.about
    return about


Who = Annotated[Identity, Depends(_who)]
Control = Annotated[control_plane.ControlPlane, Depends(_control)]
AgentsControl = Annotated[Agents, Depends(_agents)]
Server = Annotated[ServerInfo, Depends(_server_info)]
JobRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=100,
        description="id, short id, any ending of 3 characters or more, or `last`",
    ),
]
CheckpointRef = Annotated[
    str, Path(min_length=1, max_length=1024, description="id, short id or name of a checkpoint, `latest` or `best`")
]
MachineRef = Annotated[
    str, Path(min_length=1, max_length=200, description="id, short id, or the provider's own id of a machine")
]
Sha256 = Annotated[str, Path(pattern=SHA256_PATTERN)]
