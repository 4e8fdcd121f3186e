"""What routes are given: the control plane, and what this server knows of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path
from starlette.requests import HTTPConnection

from crucible.server.limits import MAX_BUNDLE
from crucible.server.ports import AgentsPort, JobsPort


@dataclass(frozen=True)
class About:
    """This server: `nonce` tells one run from another, `on_stop` asks it to end."""

    nonce: str
    version: str
    home: str
    agents_url: str
    on_stop: Callable[[], None]
    bundle_limit: int = MAX_BUNDLE
    started_at: str = ""


async def _control(connection: HTTPConnection) -> JobsPort:
    control: JobsPort = connection.app.state.control
    return control


async def _agents(connection: HTTPConnection) -> AgentsPort:
    control: AgentsPort = connection.app.state.control
    return control


async def _about(connection: HTTPConnection) -> About:
    about: About = connection.app.state.about
    return about


async def _author(connection: HTTPConnection) -> str:
    """Whoever a guard has recognised; where there is one token and one person, that one."""
    return str(connection.scope.get("crucible.person", "owner"))


Control = Annotated[JobsPort, Depends(_control)]
AgentsControl = Annotated[AgentsPort, Depends(_agents)]
Server = Annotated[About, Depends(_about)]
Author = Annotated[str, Depends(_author)]
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
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
