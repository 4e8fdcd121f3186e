"""Decide whether a process may work on a database, before it does anything there.

All processes on a database are one deployment: they have the same key, and those with backends on their own computer
share that computer and folder. Otherwise two processes would each take the other's machines for lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, select

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.runtime.host_id import HostId
from crucible.core.errors import Conflict
from crucible.core.lifecycle import MachineState

DEPLOYMENT = "deployment"
COMPUTER = "computer"
RELEASE_SQL = "DELETE FROM meta WHERE key = 'computer'"
STARTING_SECONDS = 60.0
"""Time that a process that passed the check has to take its first duty."""


class WrongDeployment(Conflict):
    code = "wrong_deployment"


class OtherComputer(Conflict):
    code = "other_computer"


@dataclass(frozen=True)
class DeploymentCheck:
    """The check of one process. `deployment` is derived from its key.

    `nearby`: its backends whose machines are on `computer`, which is None if no other process can use them.
    """

    deployment: str
    nearby: frozenset[str] = frozenset()
    computer: HostId | None = None

    def __call__(self, conn: Connection, now: float) -> None:
        """Raise WrongDeployment or OtherComputer if this process must not work on the database."""
        self._check_key(conn)
        if self.computer is not None:
            self._check_host(conn, self.computer, now)

    def _check_key(self, conn: Connection) -> None:
        known = meta.get(conn, DEPLOYMENT)
        if known is None:
            meta.put(conn, DEPLOYMENT, self.deployment)
        elif known != self.deployment:
            raise WrongDeployment(
                "This database belongs to another deployment.",
                why=f"It was created with the key of {known}; this server has the key of {self.deployment}.",
                fix="Set `key_file` to the key it was created with, or `database` to another database.",
            )

    def _check_host(self, conn: Connection, here: HostId, now: float) -> None:
        noted = json.loads(meta.get(conn, COMPUTER) or "null")
        if noted and noted["mark"] != here.mark and self._in_use(conn, float(noted["at"]), now):
            raise OtherComputer(
                f"{_quote_names(self.nearby)} of this deployment is another folder or computer.",
                why=f"Its machines are in {noted['folder']} on {noted['host']}, and it is in use.",
                fix=f"On that computer, set `local_folder` to {noted['folder']}; on others, remove it from `backends`. "
                f"If that computer is gone for good, run this in the database: {RELEASE_SQL}",
            )
        meta.put(conn, COMPUTER, json.dumps({**asdict(here), "at": now}))

    def _in_use(self, conn: Connection, noted_at: float, now: float) -> bool:
        machine, role = t.machines.c, t.roles.c
        alive = machine.backend.in_(sorted(self.nearby)), machine.state != MachineState.GONE.value
        held = conn.execute(select(role.name).where(role.until > now)).scalars()
        return (
            now - noted_at < STARTING_SECONDS
            or conn.execute(select(machine.id).where(*alive).limit(1)).first() is not None
            or any(self.nearby & set(name.partition(":")[2].split(",")) for name in held)
        )


def _quote_names(names: Iterable[str]) -> str:
    return " and ".join(f"{name!r}" for name in sorted(names))
