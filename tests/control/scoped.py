"""The control plane scoped to one caller: `ScopedControl(control, who).jobs.submit(spec, None)`."""

from __future__ import annotations

from functools import partial
from typing import Any

from crucible.control.control_plane import ControlPlane
from crucible.core.people.identity import Identity


class ScopedControl:
    def __init__(self, control: ControlPlane, who: Identity) -> None:
        self._control = control
        self._who = who

    def __getattr__(self, resource: str) -> _Resource:
        return _Resource(getattr(self._control, resource), self._who)


class _Resource:
    """A resource whose operations get the caller as their first argument."""

    def __init__(self, resource: Any, who: Identity) -> None:
        self._resource = resource
        self._who = who

    def __getattr__(self, operation: str) -> Any:
        return partial(getattr(self._resource, operation), self._who)
