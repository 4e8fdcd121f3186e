"""Durable writes to a local folder: a file appears completely or not at all, and survives a power failure.

obstore's LocalStore writes beside the target and renames, but never syncs. After a power failure a file can exist
without content, and a create-only put would take it for the stored object. So the content is synced here before the
file gets its name, and the name is synced before the write returns.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from crucible.storage.errors import NoSuchStore, StorageError
from crucible.wire.files.paths import safe_join

STAGING = ".staging"
_ABANDONED_AFTER = 24 * 3600
_MAX_REMEMBERED = 10_000
_COPY_BYTES = 1024 * 1024


class Folder:
    """Writes files below `root`. Safe for threads and for several processes at once.

    The root is made once, here. If it is gone later, it is not recreated: its content would still be missing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._durable: set[Path] = set()
        self._lock = threading.Lock()
        _make_root(root)
        self._make_durable(root / STAGING)
        self._remove_abandoned()

    def check(self) -> None:
        """Raise NoSuchStore if the folder is gone or another one, StorageError if it cannot be written."""
        staging = self.root / STAGING
        if not staging.is_dir():
            raise NoSuchStore(
                f"The store {self.root} is not there any more.",
                why="The folder was removed, replaced or unmounted while the server ran.",
                fix="Mount or restore it, or correct the setting 'store'; then start the server again.",
            )
        if not os.access(staging, os.W_OK | os.X_OK):
            raise StorageError(
                f"The store {self.root} cannot be written.",
                why="Its disk is read-only, or the server may not write there.",
                fix="Check the disk and the folder's permissions.",
            )

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Store the chunks as `name`, replacing an existing file. If `chunks` raises, nothing changes."""
        self.check()
        target = safe_join(self.root, name)
        staged = self._stage(chunks)
        try:
            self._make_durable(target.parent)
            os.replace(staged, target)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        _sync(target.parent)

    def write_new(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Like `write`, but return False if `name` exists; then the existing file is durable."""
        self.check()
        target = safe_join(self.root, name)
        if target.exists():
            self._make_durable(target.parent)
            _sync(target.parent)
            return False
        staged = self._stage(chunks)
        try:
            self._make_durable(target.parent)
            created = _link(staged, target)
        finally:
            staged.unlink(missing_ok=True)
        _sync(target.parent)
        return created

    def adopt(self, name: str, path: Path) -> None:
        """Move the file at `path` to `name`, replacing an existing file. Copies it only from another file system.

        If this fails, the file may still be at `path`.
        """
        self.check()
        target = safe_join(self.root, name)
        _sync_content(path)
        self._make_durable(target.parent)
        try:
            os.replace(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy(name, path)
        else:
            _sync(target.parent)

    def _copy(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            self.write(name, iter(lambda: file.read(_COPY_BYTES), b""))
        path.unlink()

    def _stage(self, chunks: Iterable[bytes]) -> Path:
        # A name that ends in # and a number is invisible to obstore, so staged files are never listed.
        path = self.root / STAGING / f"{secrets.token_hex(16)}#1"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _make_durable(self, folder: Path) -> None:
        """Create the folder and sync its parents, even if it exists: its creator may not have synced them yet."""
        with self._lock:
            if folder in self._durable and folder.is_dir():
                return
        path = self.root
        for part in folder.relative_to(self.root).parts:
            path = path / part
            path.mkdir(exist_ok=True)
        for parent in folder.parents:
            _sync(parent)
            if parent == self.root:
                break
        with self._lock:
            if len(self._durable) >= _MAX_REMEMBERED:
                self._durable.clear()
            self._durable.add(folder)

    def _remove_abandoned(self) -> None:
        """Remove staged files older than a day: only a crash leaves them."""
        limit = time.time() - _ABANDONED_AFTER
        for path in (self.root / STAGING).iterdir():
            try:
                if path.stat().st_mtime < limit:
                    path.unlink()
            except FileNotFoundError:
                continue


def _make_root(root: Path, mode: int = 0o700) -> None:
    """Create the folder, private to its user, and its missing parents. Sync each of them."""
    if not root.is_dir():
        _make_root(root.parent, 0o777)
        root.mkdir(mode, exist_ok=True)
        _sync(root.parent)


def _link(staged: Path, target: Path) -> bool:
    try:
        os.link(staged, target)
    except FileExistsError:
        return False
    return True


def _sync_content(path: Path) -> None:
    """Sync the file and make it private to its user. Raises for a symbolic link, which would be moved itself."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
