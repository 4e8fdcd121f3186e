"""Connecting: why nothing can run at a place that this server does not have, with the command that changes it.

One text for every face. A backend says in its row of the registry which command connects it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crucible.backends import registry
from crucible.catalog import PROVIDERS


def unconnected(connected: Sequence[str]) -> Iterable[str]:
    """The places that are known and not connected: other backends, and providers whose prices are compared."""
    known = dict.fromkeys((*registry.names(), *sorted(PROVIDERS)))
    return [name for name in known if name not in connected]


def why_unconnected(name: str, connected: Sequence[str]) -> str:
    """A sentence without its full stop; empty for a place that nobody knows."""
    command = registry.connecting(name, connected)
    if command is not None:
        return f"{name} is not connected. Connect it: {command}"
    if name not in PROVIDERS:
        return ""
    only = "this version has no backend for such a place and only compares prices"
    return f"Not connected, and no command connects {name} yet: {only}"
