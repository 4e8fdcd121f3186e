"""What a server passes to a backend that it makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Generic

from crucible.backends.bootstrap import AgentFile
from crucible.backends.settings import S_co
from crucible.catalog import Catalog, Library


@cache
def _shipped() -> Library:
    return Library()


def shipped_catalog() -> Catalog:
    """Return the prices that this version ships."""
    return _shipped().stock(today()).catalog


def today() -> date:
    return datetime.now(UTC).date()


@dataclass(frozen=True)
class BackendContext(Generic[S_co]):
    """`settings`: the backend's own. `home`: the state folder.

    `agents_url_file`: a file that holds the current address of the agents' listener. `agent_file`: the agent as one
    file; `python`: the interpreter that runs it here; `uv`: the path of uv. `environ`: the server's own variables. A
    backend passes on only those it names, never secrets. `agents_socket_file`: a file that holds the `unix:` address at
    which the server expects agents that come through a tunnel. `deployment`: the deployment's id. `clock`: seconds
    since the epoch. `catalog`: returns the prices in use, which `catalog_offers` turns into offers.
    """

    settings: S_co
    home: Path
    agents_url_file: Path
    agent_file: AgentFile
    python: str
    uv: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    agents_socket_file: Path | None = None
    deployment: str = ""
    clock: Callable[[], float] = time.time
    catalog: Callable[[], Catalog] = shipped_catalog
