"""Who may run jobs on which backend."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.control.scheduling.admission import Admission
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.errors import RefusedByPolicy
from crucible.core.people.identity import Identity, Permission


class BackendAccess:
    """`shared_computer`: jobs of several users may run side by side on this computer, as the same system user.

    `own_node`: the identity of this computer.
    """

    def __init__(
        self, backends: ConnectedBackends, admission: Admission, *, shared_computer: bool, own_node: str
    ) -> None:
        self._backends = backends
        self._admission = admission
        self._shared_computer = shared_computer
        self._own_node = own_node

    def require(self, backend: str, who: Identity, project: str) -> None:
        """Raise RefusedByPolicy unless the user may run jobs of this project on this backend."""
        refused = self.refusal(backend, who, project)
        if refused is not None:
            raise refused

    def refusal(self, backend: str, who: Identity, project: str) -> RefusedByPolicy | None:
        """Return why the user may not run jobs of this project on this backend; None if they may.

        What runs on this computer, however it is reached, may run as the system user of the server, and could read all
        that it can.
        """
        if who.may(Permission.OPERATE):
            return None
        can, allowed = self._backends.get(backend).capabilities, self._backends.projects(backend)
        if project not in allowed if allowed else can.operators_only:
            return _refused_project(backend, project, allowed)
        on_this_computer = can.reach.is_here or self._admission.reaches_node(backend, self._own_node)
        if on_this_computer and not self._shared_computer:
            return RefusedByPolicy(
                f"Jobs of several users do not run on {backend!r}.",
                why="They would run as the server's own system user, who can read its keys and the files of all users.",
                fix="Choose another backend with --backend. If the users trust each other, the operator of the server "
                "can allow it: crucible config set shared_computer true, then crucible down and crucible up.",
            )
        return None


def _refused_project(backend: str, project: str, allowed: Sequence[str]) -> RefusedByPolicy:
    options = " ".join(f"--project {name}" for name in (*allowed, project))
    return RefusedByPolicy(
        f"Jobs of the project {project!r} may not run on {backend!r}.",
        why=f"Its setting `projects` names {', '.join(allowed)}."
        if allowed
        else "Others use its computers too, so only users who operate this server may run jobs there.",
        fix="Choose another backend with --backend. An operator of the server can allow the project: "
        f"crucible backends connect {backend} {options}",
    )
