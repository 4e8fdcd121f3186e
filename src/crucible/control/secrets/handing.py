"""What an attempt is handed: the values, as they are now, of the secrets that its job names."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from crucible.control import codec
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.secrets.vault import Vault
from crucible.core.lifecycle import AttemptState
from crucible.core.secret import Secret

_ATTEMPT = Statement(
    select(t.attempts.c.state, t.jobs.c.project, t.jobs.c.spec)
    .select_from(t.attempts.join(t.jobs, t.jobs.c.id == t.attempts.c.job))
    .where(t.attempts.c.id == bindparam("attempt"))
)


def handed(conn: Connection, attempt: str, vault: Vault) -> dict[str, Secret] | None:
    """Values by variable; None when the attempt is over, or there is none."""
    row = _ATTEMPT.first(conn, attempt=attempt)
    if row is None or row["state"] == AttemptState.ENDED.value:
        return None
    return vault.values(conn, row["project"], codec.spec(row["spec"]).secrets)
