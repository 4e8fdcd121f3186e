"""The context of a backend: what the server passes to it."""

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
    """What the server passes to a backend that it makes."""

    settings: S_co
    """The backend's own settings."""
    home: Path
    """The state folder."""
    agents_url_file: Path
    """The file that holds the current URL of the agents' listener."""
    agent_file: AgentFile
    """The agent as one file."""
    python: str
    """The interpreter that runs the agent on this computer."""
    uv: str | None = None
    """The path of uv."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The server's variables. A backend passes on only those that it names, and never secrets."""
    agents_socket_file: Path | None = None
    """The file that holds the `unix:` address at which the server expects agents that come through a tunnel."""
    deployment: str = ""
    """The deployment's id."""
    clock: Callable[[], float] = time.time
    """Returns the seconds since the epoch."""
    catalog: Callable[[], Catalog] = shipped_catalog
    """Returns the prices in use, which `catalog_offers` turns into offers."""

    def timestamp(self) -> str:
        """Return the current time in UTC, for `Offer.dated`."""
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
