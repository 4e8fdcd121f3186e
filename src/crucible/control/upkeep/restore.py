"""Restore a backup while no server uses the database.

The previous database is kept beside the new one. A restored database is marked as such: nothing is destroyed on its
word until the operator confirms it (see restore_hold.py).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, case, select, update

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.db.migrate import ALL_MIGRATIONS, check_revision, is_postgres, upgrade_schema
from crucible.control.db.sqlite.connection import close_connection, driver_of, open_writer
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.jobs.queries import TERMINAL_STATES
from crucible.control.reconcile import repository
from crucible.control.runtime.deployment_check import COMPUTER, DEPLOYMENT
from crucible.control.upkeep import postgres_tools, restore_hold
from crucible.control.upkeep.backup import (
    FORMAT,
    MANIFEST,
    POSTGRES_MEMBER,
    SQLITE_MEMBER,
    BackupSource,
    Manifest,
    check_sqlite,
    file_sha256,
    os_errors_as_ours,
    sync_folder,
    temporary_name,
)
from crucible.core.errors import BadInput, Conflict
from crucible.core.lifecycle import AttemptState, Event, MachineState, Reason, Step, World
from crucible.core.lifecycle.outcome import end_job

MAX_MANIFEST = 64 * 1024
CHUNK = 1024 * 1024
_HEADER = b"SQLite format 3\0"
_UNREADABLE = (KeyError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What opening or reading a damaged archive raises."""


class BadBackup(BadInput):
    """The file is not a Crucible backup, or is damaged."""

    code = "bad_backup"


class ForeignBackup(Conflict):
    """The backup belongs to another deployment, whose machines and agents are not ours."""

    code = "foreign_backup"


class InUse(Conflict):
    code = "database_in_use"


@dataclass(frozen=True)
class RestoreResult:
    """`kept` is where the previous database is; None if there was none."""

    manifest: Manifest
    kept: str | None


def read_manifest(file: Path) -> Manifest:
    """Return the manifest of a backup. Raises BadBackup."""
    with _open_archive(file) as packed:
        try:
            if packed.getinfo(MANIFEST).file_size > MAX_MANIFEST:
                raise BadBackup(f"{file} is not a backup.", why="Its manifest is too large.")
            manifest = Manifest.model_validate_json(packed.read(MANIFEST))
        except (*_UNREADABLE, OSError) as error:
            why = "It has no readable manifest."
            raise BadBackup(f"{file} is not a backup.", why=why, fix="Choose another file.") from error
    if manifest.format > FORMAT:
        raise BadBackup(f"{file} was made by a newer Crucible.", fix="Upgrade crucible-ml.")
    return manifest


def restore(
    source: BackupSource, file: Path, now: float, *, force: bool = False, in_use: bool = False
) -> RestoreResult:
    """Replace the database with the backup. The caller holds the state folder's lock.

    Raises BadBackup, ForeignBackup (unless `force`), OlderDatabase, NewerDatabase, DiskFull, InUse (unless `in_use`).
    A failure changes nothing. Of another deployment's backup only the history is used: nothing in it is ended or run.
    """
    manifest = read_manifest(file)
    if manifest.deployment != source.deployment and not force:
        raise ForeignBackup(
            "The backup was made by another deployment.",
            why=f"It belongs to {manifest.deployment}, this is {source.deployment}; the file `key` decides which.",
            fix="Restore the `key` file of that state folder too, or add --force to restore only its history.",
        )
    check_revision(manifest.schema_revision, ALL_MIGRATIONS)
    if is_postgres(str(source.database)):
        return _restore_postgres(source, file, manifest, now, in_use)
    return _restore_sqlite(source, file, manifest, now)


def confirm_offline(source: BackupSource, now: float) -> restore_hold.ConfirmResult:
    """Confirm a restore on a database that no server has open."""
    if is_postgres(str(source.database)):
        from crucible.control.db.postgres.schema import open_connection

        with open_connection(str(source.database)) as connection, connection.begin():
            return restore_hold.confirm(connection, _server_now(connection))
    with _transaction(Path(source.database)) as connection:
        return restore_hold.confirm(connection, now)


# SQLite


def _restore_sqlite(source: BackupSource, file: Path, manifest: Manifest, now: float) -> RestoreResult:
    _expect(manifest, SQLITE_MEMBER, file, "SQLite")
    database = Path(source.database)
    fresh = temporary_name(database, "restoring")
    try:
        with os_errors_as_ours(fresh):
            _unpack(file, manifest, fresh)
            check_sqlite(fresh)
            upgrade_schema(fresh)
            with _transaction(fresh) as connection:
                _adopt(connection, source.deployment, manifest, now)
            return RestoreResult(manifest, _swap(database, fresh, now))
    finally:
        for path in _with_logs(fresh):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _transaction(path: Path) -> Iterator[Connection]:
    """Yield a transaction on a database file, which is durable once the block has ended without an error."""
    with translate_errors():
        connection = open_writer(str(path))
        driver = driver_of(connection)
        try:
            driver.execute("BEGIN IMMEDIATE").close()
            yield connection
            driver.execute("COMMIT").close()
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        finally:
            if driver.in_transaction:
                driver.execute("ROLLBACK").close()
            close_connection(connection)


def _swap(database: Path, fresh: Path, now: float) -> str | None:
    """Replace the database by the new file and return where the old one is kept. Nobody has either open."""
    kept = None
    if database.exists():
        _fold_log(database)
        kept = _free_name(database, now)
        os.link(database, kept)
        for log, old in list(zip(_with_logs(kept), _with_logs(database), strict=True))[1:]:
            if old.exists():  # could not be folded in: it belongs to the old file, and the new one must not read it
                os.replace(old, log)
    descriptor = os.open(fresh, os.O_RDWR)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(fresh, database)
    sync_folder(database.parent)
    return None if kept is None else str(kept)


def _fold_log(database: Path) -> None:
    """Write the old database's log into its file, if that is a readable database."""
    with database.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            return
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(database)) as old:
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _free_name(database: Path, now: float) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name, n = database.with_name(f"{database.name}.before-restore-{stamp}"), 1
    while name.exists():
        name, n = database.with_name(f"{database.name}.before-restore-{stamp}-{n}"), n + 1
    return name


def _with_logs(path: Path) -> tuple[Path, Path, Path]:
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


# PostgreSQL


def _restore_postgres(source: BackupSource, file: Path, manifest: Manifest, now: float, in_use: bool) -> RestoreResult:
    from crucible.control.db.postgres import schema

    url = str(source.database)
    _expect(manifest, POSTGRES_MEMBER, file, "PostgreSQL")
    if not in_use:
        _refuse_while_used(url)
    kept = file.absolute().with_name(f"before-restore-{int(now)}.pgdump")
    with os_errors_as_ours(kept), tempfile.TemporaryDirectory(prefix="crucible-restore-") as folder:
        dumped = Path(folder) / POSTGRES_MEMBER
        _unpack(file, manifest, dumped)
        postgres_tools.dump(url, kept)
        postgres_tools.restore_dump(url, dumped, _MARK_RESTORED)
    schema.upgrade_schema(url)
    with schema.open_connection(url) as connection, connection.begin():
        _adopt(connection, source.deployment, manifest, _server_now(connection))
    return RestoreResult(manifest, str(kept))


_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
"""The clock of all processes on the database; that of this computer may differ."""
_KEY = restore_hold.RESTORED_AT
_MARK_RESTORED = f"DELETE FROM public.meta WHERE key = '{_KEY}'; INSERT INTO public.meta VALUES ('{_KEY}', {_CLOCK});"  # noqa: S608  constants
"""Marks the database in the same transaction as the dump, so that an interrupted restore is held too."""


def _server_now(connection: Connection) -> float:
    return float(connection.exec_driver_sql(f"SELECT {_CLOCK}").scalar_one())


def _refuse_while_used(url: str) -> None:
    from crucible.control.db.postgres.schema import open_connection

    with open_connection(url) as connection:
        if connection.exec_driver_sql("SELECT to_regclass('roles')").scalar() is None:
            return
        held = t.roles.c.until > _server_now(connection)
        used = connection.execute(select(t.roles.c.holder).where(held).limit(1)).scalar()
    if used is not None:
        raise InUse(
            "A server or worker is using this database.",
            why=f"{used} holds a duty.",
            fix="Stop every server and worker on it first, or add --in-use if you are certain that none is running.",
        )


# Both


def _expect(manifest: Manifest, member: str, file: Path, kind: str) -> None:
    if manifest.member != member:
        raise BadBackup(
            f"{file} is a backup of another kind of database.",
            why=f"It holds {manifest.member}; this deployment's database is {kind}.",
            fix="Set `database` to the kind that it was made from.",
        )


def _adopt(connection: Connection, deployment: str, manifest: Manifest, now: float) -> None:
    """Mark the database as restored. Another deployment's becomes history of this one."""
    if manifest.deployment != deployment:
        disown(connection, manifest.deployment, manifest.created_at, now)
    restore_hold.mark_restored(connection, now, manifest.created_at)
    named = update(t.meta).where(t.meta.c.key == DEPLOYMENT).values(value=deployment)
    connection.execute(named)


def _unpack(file: Path, manifest: Manifest, target: Path) -> None:
    with _open_archive(file) as packed, os_errors_as_ours(target):
        try:
            with packed.open(manifest.member) as inner, open(target, "xb", opener=_private) as outer:
                _copy(inner, outer, manifest.size)
        except _UNREADABLE as error:
            raise _damaged(file, str(error)) from error
    if target.stat().st_size != manifest.size or file_sha256(target) != manifest.sha256:
        raise _damaged(file, "The database in it is not the one its manifest names.")


def _copy(inner: IO[bytes], outer: IO[bytes], size: int) -> None:
    """Copy at most one byte more than the manifest says, so that a wrong size is noticed and cannot fill the disk."""
    left = size + 1
    while left > 0 and (chunk := inner.read(min(left, CHUNK))):
        outer.write(chunk)
        left -= len(chunk)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _damaged(file: Path, why: str) -> BadBackup:
    return BadBackup(f"{file} is damaged.", why=why, fix="Choose another backup.")


@contextlib.contextmanager
def _open_archive(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        packed = zipfile.ZipFile(file)
    except FileNotFoundError as error:
        raise BadInput(f"There is no file {file}.", fix="Name a backup made by `crucible db backup`.") from error
    except (*_UNREADABLE, OSError) as error:
        raise BadBackup(f"{file} cannot be read as a backup.", why=str(error), fix="Choose another file.") from error
    with packed:
        yield packed


# Another deployment's backup, restored for its history alone: the machines it names are not ours to touch


def disown(conn: Connection, deployment: str, backup_at: float, now: float) -> None:
    """End everything of `deployment` in this database only: it may go on running there.

    Nothing of it is launched, polled, ended, metered or run from here.
    """
    why = f"it belongs to another deployment, {deployment}: its history alone was restored"
    conn.execute(update(t.effects).where(t.effects.c.done.is_(False)).values(done=True, error=why))
    for job in conn.execute(select(t.jobs.c.id).where(t.jobs.c.state.not_in(TERMINAL_STATES))).scalars().all():
        _conclude(conn, job, why, now)
    conn.execute(update(t.slots).values(ended=True))
    c = t.machines.c
    gone = {"state": MachineState.GONE.value, "gone_at": now, "detail": why, "version": c.version + 1}
    conn.execute(update(t.machines).where(c.state != MachineState.GONE.value).values(gone))
    conn.execute(update(t.machines).values(metered=True))
    _close_bills(conn, backup_at)
    meta.drop(conn, COMPUTER)


def _conclude(conn: Connection, job: str, why: str, now: float) -> None:
    world = repository.load_world(conn, job)
    assert world is not None, "read a moment ago, in the same transaction"
    step = Step(world)
    while (attempt := step.world.live) is not None:
        data = {"attempt": attempt.number, "reason": Reason.MACHINE_LOST.value, "detail": why}
        slots = tuple(replace(slot, ended=True) for slot in attempt.slots)
        ended = replace(attempt, state=AttemptState.ENDED, slots=slots, reason=Reason.MACHINE_LOST, detail=why)
        after = step.world.with_attempt(replace(ended, ended_at=now))
        step = step.then(Step(after, (Event("attempt_ended", data),)))
    repository.save_step(conn, world, step.then(end_job(step.world, _reason(world), why, now)), now)


def _reason(world: World) -> Reason:
    """Return why the job ends here: cancelled if it was not running, else its machine is lost to us."""
    return Reason.CANCELLED if world.live is None else Reason.MACHINE_LOST


def _close_bills(conn: Connection, backup_at: float) -> None:
    """Close open price segments: what was spent since the backup is billed to the other deployment."""
    c = t.price_segments.c
    ends_at = case((c.starts_at > backup_at, c.starts_at), else_=backup_at)
    conn.execute(update(t.price_segments).where(c.ends_at.is_(None)).values(ends_at=ends_at))
