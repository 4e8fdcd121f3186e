"""Backups of the database, made while it is in use.

A backup is a zip archive of `manifest.json` and the database: a copy made by SQLite itself, or a dump by pg_dump. The
file appears complete or not at all. The objects in the store (bundles, logs, checkpoints, artifacts) are not in it; the
manifest says where the store is. See restore.py for the other direction.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from crucible.control.db.migrate import is_postgres, revision_of
from crucible.control.db.port import DamagedDatabase
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.runtime.ports import Ports
from crucible.control.upkeep import postgres_tools
from crucible.core.errors import BadInput, Conflict, DiskFull, Trouble
from crucible.core.views.server import BackupView

FORMAT = 1
MANIFEST = "manifest.json"
LANE = "backup"
DEADLINE = 4 * 3600.0
CHUNK = 1024 * 1024
SQLITE_MEMBER = "crucible.db"
POSTGRES_MEMBER = "crucible.pgdump"


class BackupExists(Conflict):
    code = "backup_exists"


class Manifest(BaseModel):
    """What is in a backup. `sha256` and `size` are those of its database, `created_at` is in epoch seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = FORMAT
    member: str
    schema_revision: str = Field(alias="schema")
    deployment: str
    created_at: float
    version: str
    sha256: str
    size: int
    store: str


@dataclass(frozen=True)
class BackupSource:
    """What to back up: a SQLite file or a PostgreSQL URL, its deployment, and where the store is."""

    database: Path | str
    deployment: str
    store: str
    version: str


@dataclass(frozen=True)
class BackupFile:
    """A durable backup. `store` is where the objects are, which it does not hold."""

    path: str
    bytes: int
    sha256: str
    store: str


class Backup:
    """Backups of a database that is in use."""

    def __init__(self, ports: Ports, source: BackupSource) -> None:
        self._ports = ports
        self._source = source

    async def make(self, target: str, *, overwrite: bool = False) -> BackupView:
        """Write a backup to `target` on this server's disk, without blocking readers and writers."""
        now = self._ports.clock.now()
        made = await self._ports.calls.run(
            LANE, lambda: write_backup(self._source, Path(target), now, overwrite=overwrite), DEADLINE
        )
        return BackupView(
            path=made.path,
            bytes=made.bytes,
            sha256=made.sha256,
            store=made.store,
            note=f"The store ({made.store}) is not part of it: back that up too.",
        )


def write_backup(source: BackupSource, target: Path, now: float, *, overwrite: bool = False) -> BackupFile:
    """Write a backup; a failure leaves nothing behind.

    Raises BadInput (no such folder), BackupExists, DiskFull, Trouble.
    """
    target = target.expanduser().absolute()
    _check_target(target, overwrite)
    with os_errors_as_ours(target), _private_folder(target.parent) as folder:
        manifest = _copy(source, folder, now)
        archive = folder / "backup.zip"
        _pack(archive, manifest, folder / manifest.member)
        digest, size = file_sha256(archive), archive.stat().st_size
        _publish(archive, target, overwrite)
    return BackupFile(str(target), size, digest, source.store)


def check_sqlite(path: Path) -> str:
    """Return the revision of an intact database file. Raises DamagedDatabase, OlderDatabase or NewerDatabase."""
    with translate_errors(), contextlib.closing(sqlite3.connect(path)) as copy:
        found = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise DamagedDatabase("The copy of the database is damaged.", why=f"{found}.", fix="Check the disk.")
        revision = revision_of(copy)
    if revision is None:
        raise DamagedDatabase("The database is empty.", fix="Check which file it is.")
    return revision


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def os_errors_as_ours(path: Path) -> Iterator[None]:
    """Raise errors of the file system at `path` as errors with a fix."""
    try:
        yield
    except DiskFull as error:
        raise _full(path, error.why) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(path, str(error)) from error
        fix = "Choose a folder that you may write to."
        raise Trouble(f"{path} cannot be used.", why=str(error), fix=fix) from error


def _full(path: Path, why: str) -> DiskFull:
    fix = "Free some space there, or choose a folder on another disk."
    return DiskFull(f"There is no room left in {path.parent}.", why=why, fix=fix)


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.parent.is_dir():
        raise BadInput(f"There is no folder {target.parent}.", fix="Create it first, or choose another.")
    if target.is_dir():
        raise BadInput(f"{target} is a folder.", fix="Name a file in it.")
    if target.exists() and not overwrite:
        raise _exists(target)


def _exists(target: Path) -> BackupExists:
    return BackupExists(f"{target} already exists.", fix="Choose another name, or remove it first.")


@contextlib.contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Yield a private folder beside the target, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=".backup-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: BackupSource, folder: Path, now: float) -> Manifest:
    if is_postgres(str(source.database)):
        copy = folder / POSTGRES_MEMBER
        revision = postgres_tools.read_revision(str(source.database))
        postgres_tools.dump(str(source.database), copy)
    else:
        copy = folder / SQLITE_MEMBER
        revision = _copy_sqlite(Path(source.database), copy)
    return Manifest(
        member=copy.name,
        schema=revision,
        deployment=source.deployment,
        created_at=now,
        version=source.version,
        sha256=file_sha256(copy),
        size=copy.stat().st_size,
        store=source.store,
    )


def _copy_sqlite(database: Path, copy: Path) -> str:
    """Copy one consistent snapshot and return its revision; in WAL mode nobody waits for it."""
    if not database.is_file():
        raise BadInput(f"There is no database {database}.", fix="Set CRUCIBLE_HOME to the state folder you mean.")
    with (
        translate_errors(),
        contextlib.closing(sqlite3.connect(database)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.execute("PRAGMA query_only=ON")
        source.execute("SELECT 1 FROM sqlite_master").close()  # raises if it is locked, where backup() waits forever
        source.backup(target, pages=-1)
        target.execute("PRAGMA journal_mode=DELETE")  # a single file, without a log beside it
    return check_sqlite(copy)


def _pack(archive: Path, manifest: Manifest, copy: Path) -> None:
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr(MANIFEST, manifest.model_dump_json(by_alias=True, indent=2))
        packed.write(copy, copy.name)
    descriptor = os.open(archive, os.O_RDWR)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(archive: Path, target: Path, overwrite: bool) -> None:
    """Give the finished file its name. Of two backups with the same name, only one succeeds."""
    if overwrite:
        os.replace(archive, target)
    else:
        try:
            os.link(archive, target)
        except FileExistsError as error:
            raise _exists(target) from error
    sync_folder(target.parent)


def temporary_name(path: Path, purpose: str) -> Path:
    return path.with_name(f"{path.name}.{purpose}-{secrets.token_hex(4)}")
