"""The connected backends, and how to connect the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from crucible.backends import registry
from crucible.backends.base import Backend
from crucible.catalog import PROVIDERS
from crucible.control.connections.live import LiveBackends
from crucible.core.channels import Rejection
from crucible.core.errors import UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling import fit

if TYPE_CHECKING:
    from crucible.control.storelink import Invitations


class ConnectedBackends:
    """Reads `LiveBackends`, and knows which backends nothing may be placed on, with the reason.

    `invitations` knows how agents reach this server. Without it no backend is rejected because they cannot.
    """

    def __init__(self, backends: Mapping[str, Backend], invitations: Invitations | None = None) -> None:
        self._backends = LiveBackends.wrap(backends)
        self._invitations = invitations

    def names(self) -> list[str]:
        return sorted(self._backends)

    @property
    def revision(self) -> int:
        """Return a number that grows whenever a backend comes, goes or changes."""
        return self._backends.revision

    def projects(self, name: str) -> tuple[str, ...]:
        """Return the projects that may use the backend; empty if its settings name none."""
        return self._backends.projects(name)

    def all(self) -> Mapping[str, Backend]:
        """Return the backends by name, as they are now."""
        return self._backends.snapshot()

    def has(self, name: str) -> bool:
        return name in self._backends

    def get(self, name: str) -> Backend:
        """Return the backend. Raises UnknownName, which says how to connect it."""
        backend = self._backends.get(name)
        if backend is None:
            raise UnknownName("backend", name, self._backends, fix=self.how_to_connect(name))
        return backend

    def how_to_connect(self, name: str) -> str:
        """Return the fix for an error about a backend that is not connected."""
        why = why_unconnected(name)
        return f"{why}." if why else "`crucible backends` lists them."

    def probe(self, backend: Backend) -> None:
        """Find out what `rejection` needs to know of the backend's agents. May block for a moment."""
        if self._invitations is not None:
            self._invitations.probe(backend)

    def rejection(self, name: str, *, secrets: bool) -> Rejection | None:
        """Return why nothing may be placed there: its agents cannot reach this server, or it is being disconnected.

        With `secrets`, also why the channel they would use must not carry secrets.
        """
        if self._backends.is_closing(name):
            return Rejection(f"{name} is being disconnected", f"Connect it again: crucible backends connect {name}.")
        backend = self._backends.get(name)
        if self._invitations is None or backend is None:
            return None
        return self._invitations.rejection(backend, secrets=secrets)

    def why_no_files(self, name: str, spec: JobSpec) -> str:
        """Return which files of this computer the job is to use and the backend's machines lack; empty if none."""
        can = self.get(name).capabilities
        return fit.why_no_files(spec, name, in_place=can.in_place, may_see_paths=can.reach.may_see_paths)


def list_unconnected(connected: Sequence[str]) -> Iterable[str]:
    """Return the known backends, and providers whose prices are compared, that are not connected."""
    known = dict.fromkeys((*registry.names(), *sorted(PROVIDERS)))
    return [name for name in known if name not in connected]


def why_unconnected(name: str) -> str:
    """Return why nothing runs on this backend and how to connect it, without a full stop; empty for an unknown name."""
    command = registry.connect_command(name)
    if command is not None:
        return f"{name} is not connected. Connect it: {command}"
    if name not in PROVIDERS:
        return ""
    return f"Not connected, and no command connects {name} yet: this version only compares prices there"
