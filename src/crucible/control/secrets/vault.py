"""The vault: set, list and remove secrets, give jobs their values, and rotate keys.

Rotation survives a crash at any point. The new key is written to the file before the old ones; then all rows are
re-encrypted in one transaction, which also stores which key they have; then the old keys are dropped. A server
that starts and finds more than one key in the file finishes the rotation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import structlog
from sqlalchemy import Connection, bindparam, select

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs.views import iso
from crucible.control.people import audit, projects
from crucible.control.reconcile import codec
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.resources.access import Access
from crucible.control.runtime.ports import Ports
from crucible.control.secrets import rows
from crucible.control.secrets.keyring import Key, Keyring, new_key
from crucible.core.errors import BadInput, Conflict, Trouble
from crucible.core.lifecycle import AttemptState
from crucible.core.people.identity import Identity, Permission
from crucible.core.people.project_secrets import (
    is_secret_name,
    missing_secret,
    validate_secret_name,
    validate_secret_value,
)
from crucible.core.secret import Secret
from crucible.core.views.people import RotationView, SecretPage, SecretView

log = structlog.get_logger(__name__)

LANE = "secrets"
WRITE_SECONDS = 30.0
MAX_BYTES = 256 * 1024
"""Of all secrets of one job, because the environment of a process is limited."""
_ATTEMPT = Statement(
    select(t.attempts.c.state, t.jobs.c.project, t.jobs.c.spec)
    .select_from(t.attempts.join(t.jobs, t.jobs.c.id == t.attempts.c.job))
    .where(t.attempts.c.id == bindparam("attempt"))
)


class Vault:
    """Members of a project may list and use its secrets, its admins may set and remove them. Nobody reads them back."""

    def __init__(self, ports: Ports, access: Access, keys: Path) -> None:
        self._ports = ports
        self._access = access
        self._keyring = Keyring(keys)

    # for users

    async def list_secrets(self, who: Identity, project: str) -> SecretPage:
        await self._access.require_project(who, project, Permission.WRITE)
        return SecretPage(items=tuple(await self._ports.db.read(lambda conn: rows.list_secrets(conn, project))))

    async def set(self, who: Identity, project: str, name: str, value: Secret) -> tuple[SecretView, bool]:
        """Store a secret. Return its view, and whether it is new."""
        await self._access.require_project(who, project, Permission.MANAGE)
        validate_secret_name(name)
        validate_secret_value(value.reveal())

        def put(conn: Connection, now: float) -> tuple[SecretView, bool]:
            projects.require(conn, project)
            created = self.put(conn, project, name, value, now, who.name)
            audit.record(conn, who, "secret.set", name, now, project=project, data={"new": created})
            return SecretView(name=name, updated_at=iso(now), updated_by=who.name), created

        return await self._ports.write(put)

    async def remove(self, who: Identity, project: str, name: str) -> None:
        await self._access.require_project(who, project, Permission.MANAGE)

        def drop(conn: Connection, now: float) -> None:
            if not is_secret_name(name) or not self.delete(conn, project, name):
                raise missing_secret(name, project)
            audit.record(conn, who, "secret.remove", name, now, project=project)

        await self._ports.write(drop)

    # for the server itself, inside a transaction

    def put(self, conn: Connection, project: str, name: str, value: Secret, now: float, by: str) -> bool:
        """Store a secret; return whether it is new."""
        sealed = Cipher(self._current_key(conn)).seal(project, name, value)
        return rows.put(conn, project, name, sealed, now, by)

    def delete(self, conn: Connection, project: str, name: str) -> bool:
        """Delete a secret; return whether it existed."""
        rows.lock_key(conn)
        if not rows.remove(conn, project, name):
            return False
        if not rows.list_rows(conn):
            # Nothing needs the key any more, so a deployment that has lost it can start over with a new one.
            meta.drop(conn, rows.KEY)
        return True

    # for jobs

    def require(self, conn: Connection, project: str, names: Iterable[str]) -> None:
        """Raise NotFound unless all of the secrets exist."""
        found = rows.rows_by_name(conn, project, names)
        for name in names:
            if name not in found:
                raise missing_secret(name, project)

    def values(self, conn: Connection, project: str, wanted: Mapping[str, str]) -> dict[str, Secret]:
        """Return values by environment variable, for `wanted` names by variable. Raises NotFound, BadInput, Trouble."""
        if not wanted:
            return {}
        self.require(conn, project, wanted.values())
        found = rows.rows_by_name(conn, project, wanted.values())
        cipher = Cipher(self._read_keys(meta.get(conn, rows.KEY)))
        opened = {name: cipher.unseal(project, name, row["ciphertext"]) for name, row in found.items()}
        found_values = {variable: opened[name] for variable, name in wanted.items()}
        if (size := sum(len(value.reveal().encode()) for value in found_values.values())) > MAX_BYTES:
            what = f"The secrets of this job have {size} bytes; at most {MAX_BYTES} are allowed."
            raise BadInput(what, fix="Put large things into files that the job fetches with a secret.")
        return found_values

    def values_of_attempt(self, conn: Connection, attempt: str) -> dict[str, Secret] | None:
        """Return the current values of an attempt's secrets, by variable; None if it has ended or is unknown."""
        row = _ATTEMPT.first(conn, attempt=attempt)
        if row is None or row["state"] == AttemptState.ENDED.value:
            return None
        return self.values(conn, row["project"], codec.parse_spec(row["spec"]).secrets)

    # keys

    async def rotate(self, who: Identity) -> RotationView:
        """Make a new key, re-encrypt every secret with it, and drop the old keys."""
        who.require(Permission.OPERATE)
        await self._ports.db.read(lambda conn: self._read_keys(meta.get(conn, rows.KEY)))
        with self._keyring.locked():
            await self._write_keys((new_key(), *self._keyring.read()))
            crashpoint("secrets.key_added")
            count = await self._reencrypt(who)
        return RotationView(secrets=count)

    async def finish_rotation(self) -> None:
        """Finish a rotation that was interrupted. Called when a server starts."""
        try:
            if len(self._keyring.read()) < 2:
                return
            with self._keyring.locked():
                count = await self._reencrypt(None)
            log.info("an interrupted rotation of the secrets keys was finished", secrets=count)
        except (Conflict, Trouble) as error:
            log.warning("the rotation of the secrets keys could not be finished", why=str(error))

    async def _reencrypt(self, who: Identity | None) -> int:
        """Re-encrypt all rows with the newest key of the file and drop the others; return how many rows there are."""

        def reencrypt(conn: Connection, now: float) -> tuple[Key, int]:
            keys = self._read_keys(rows.lock_key(conn))
            cipher = Cipher(keys)
            found = rows.list_rows(conn)
            for row in found:
                value = cipher.unseal(row["project"], row["name"], row["ciphertext"])
                sealed = cipher.seal(row["project"], row["name"], value)
                rows.replace_ciphertext(conn, row["project"], row["name"], sealed)
            meta.put(conn, rows.KEY, keys[0].fingerprint)
            if who is not None:
                audit.record(conn, who, "secrets.rotate", "", now, data={"secrets": len(found)})
            crashpoint("secrets.before_commit")
            return keys[0], len(found)

        newest, count = await self._ports.write(reencrypt)
        crashpoint("secrets.after_commit")
        await self._write_keys((newest,))
        return count

    async def _write_keys(self, keys: tuple[Key, ...]) -> None:
        await self._ports.calls.run(LANE, lambda: self._keyring.write(keys), WRITE_SECONDS)

    def _current_key(self, conn: Connection) -> tuple[Key, ...]:
        """Return the key that all rows have, locked until the transaction ends; created on first use."""
        known = rows.lock_key(conn)
        if known is None:
            newest = (self._keyring.read() or self._keyring.make())[0]
            meta.put(conn, rows.KEY, newest.fingerprint)
            return (newest,)
        return tuple(key for key in self._read_keys(known) if key.fingerprint == known)

    def _read_keys(self, known: str | None) -> tuple[Key, ...]:
        """Return the keys of the file. Raises Trouble if the one that the rows have is not among them."""
        keys = self._keyring.read()
        if not keys and known is None:
            return self._keyring.make()
        if known is not None and known not in {key.fingerprint for key in keys}:
            raise Trouble(
                f"The file {self._keyring.path} {'is not the one that the secrets need' if keys else 'is missing'}.",
                why="It holds the keys that the secrets of this database are encrypted with.",
                fix="Restore it from a backup, or copy it from the server of this deployment that has it (after "
                "`crucible secrets rotate`, to all servers). If it is lost, so are the secrets: set all of them again.",
            )
        return keys


class Cipher:
    """Encrypts values together with their project and name, with the first key; decrypts with any."""

    def __init__(self, keys: Sequence[Key]) -> None:
        from cryptography.fernet import Fernet, MultiFernet

        self._fernet = MultiFernet([Fernet(key.text) for key in keys])

    def seal(self, project: str, name: str, value: Secret) -> str:
        content = json.dumps([project, name, value.reveal()]).encode()
        return self._fernet.encrypt(content).decode()

    def unseal(self, project: str, name: str, ciphertext: str) -> Secret:
        """Return the value. Raises Trouble if its key is not here, or if it was encrypted as another secret."""
        from cryptography.fernet import InvalidToken

        try:
            found = json.loads(self._fernet.decrypt(ciphertext.encode()))
        except InvalidToken:
            raise _unreadable(project, name, "It was encrypted with a key that is not in secrets.keys.") from None
        if found[:2] != [project, name]:
            raise _unreadable(project, name, "Its row holds what belongs to another secret.")
        return Secret(found[2])


def _unreadable(project: str, name: str, why: str) -> Trouble:
    again = f"secrets set {name}" if is_secret_name(name) else f"notifications rotate {name.rpartition(':')[2]}"
    return Trouble(
        f"The secret {name!r} of the project {project!r} cannot be decrypted.",
        why=why,
        fix=f"Restore the file secrets.keys that belongs to this database, or set it again: "
        f"crucible {again} --project {project}",
    )
