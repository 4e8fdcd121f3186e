"""Reads and writes connections together with their secrets, which the vault encrypts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from crucible.control.connections import rows
from crucible.control.connections.rows import StoredConnection
from crucible.control.secrets import Vault
from crucible.core.errors import CrucibleError, Trouble
from crucible.core.secret import Secret

SCOPE = ":backends"
"""The vault's project for secrets of backends. No project and no user's secret can have such a name."""


@dataclass(frozen=True)
class ConnectionStore:
    vault: Vault

    def values(self, conn: Connection, connection: StoredConnection) -> dict[str, object]:
        """Return all stored settings. Raises Trouble if a secret cannot be decrypted."""
        named = {field: _secret_name(connection.name, field) for field in connection.secrets}
        try:
            return {**connection.settings, **self.vault.values(conn, SCOPE, named)}
        except CrucibleError as error:
            raise Trouble(
                f"The secret settings of the backend {connection.name!r} cannot be read.",
                why=f"{error.what} {error.why}",
                fix="Restore the file secrets.keys that belongs to this database. If it is lost: "
                f"crucible backends disconnect {connection.name}, then connect it again.",
            ) from error

    def put(
        self,
        conn: Connection,
        name: str,
        settings: Mapping[str, object],
        secrets: Mapping[str, Secret],
        now: float,
        by: str,
    ) -> None:
        """Store the settings, and exactly these secrets."""
        self._drop_secrets(conn, name)
        for field, secret in secrets.items():
            self.vault.put(conn, SCOPE, _secret_name(name, field), secret, now, by)
        rows.put(conn, name, settings, secrets.keys(), now, by)

    def remove_closed(self, conn: Connection, name: str) -> bool:
        """Delete a connection that is being closed, with its secrets; return whether there was one."""
        known = rows.find(conn, name)
        if known is None or known.closing_at is None:
            return False
        self._drop_secrets(conn, name)
        return rows.remove_closed(conn, name)

    def _drop_secrets(self, conn: Connection, name: str) -> None:
        known = rows.find(conn, name)
        for field in () if known is None else known.secrets:
            self.vault.delete(conn, SCOPE, _secret_name(name, field))


def _secret_name(backend: str, field: str) -> str:
    return f"{backend}:{field}"
