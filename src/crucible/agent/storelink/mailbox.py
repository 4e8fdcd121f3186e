"""A mailbox as an agent uses it: reads and writes of its objects, and its implementation in a folder.

Calls raise `Unreachable` (retry), or `NoRoom` if the store is full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, Union

from crucible.agent.files import sync_folder
from crucible.agent.link.channel import NoRoom
from crucible.agent.link.connection import Unreachable
from crucible.wire.documents.mailbox import is_private, mailbox_folder
from crucible.wire.files.paths import UnsafePath, safe_join

CHUNK = 1024 * 1024
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Content = Union[bytes, BinaryIO]


class Mailbox(Protocol):
    """Names are relative to the mailbox. `pace` is the number of seconds between two polls."""

    pace: float

    @property
    def is_private(self) -> bool:
        """Whether only this user can read the objects: then documents need no encryption."""

    def get(self, name: str, limit: int) -> bytes | None:
        """Return the object; None if it does not exist or is larger than `limit`."""

    def put(self, name: str, content: Content, size: int) -> None:
        """Store the object atomically and durably."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Store the object if it does not exist, else return False. A bucket cannot check that, and returns True."""

    def fetch(self, name: str, key: str | None, start: int) -> Iterator[bytes]:
        """Yield an object that the control plane shares, from byte `start`; `key` is its key in the store."""


class FolderMailbox:
    """A mailbox in a shared folder. Mount a network file system with options that make calls fail, not hang."""

    pace = 0.5

    def __init__(self, root: Path, machine: str) -> None:
        self._root = root
        self._box = root / mailbox_folder(machine)

    @property
    def is_private(self) -> bool:
        return is_private(self._root)

    def get(self, name: str, limit: int) -> bytes | None:
        with _store_errors(name):
            try:
                with open(safe_join(self._box, name), "rb") as file:
                    data = file.read(limit + 1)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return data if len(data) <= limit else None

    def put(self, name: str, content: Content, size: int) -> None:
        with _store_errors(name):
            target, staged = self._stage(name, content)
            try:
                os.replace(staged, target)
            finally:
                staged.unlink(missing_ok=True)
            sync_folder(target.parent)

    def put_new(self, name: str, data: bytes) -> bool:
        with _store_errors(name):
            target, staged = self._stage(name, data)
            try:
                os.link(staged, target)
            except FileExistsError:
                return False
            finally:
                staged.unlink(missing_ok=True)
            sync_folder(target.parent)
        return True

    def fetch(self, name: str, key: str | None, start: int) -> Iterator[bytes]:
        if key is None:
            raise Unreachable(f"{name} is not in the store yet")
        with _store_errors(name), open(safe_join(self._root, key), "rb") as file:
            file.seek(start)
            while True:
                chunk = file.read(CHUNK)
                if not chunk:
                    return
                yield chunk

    def _stage(self, name: str, content: Content) -> tuple[Path, Path]:
        """Write and sync the content beside its target. Stores do not list names that end in `#1`."""
        target = safe_join(self._box, name)
        path = self._root  # which may be gone, and must not be recreated
        for part in target.parent.relative_to(self._root).parts:
            path = path / part
            path.mkdir(mode=0o700, exist_ok=True)
        staged = target.with_name(f".{secrets.token_hex(8)}#1")
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in _chunks(content):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        return target, staged


def _chunks(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    while True:
        try:
            chunk = content.read(CHUNK)
        except OSError as error:
            raise _Unreadable(error) from error
        if not chunk:
            return
        yield chunk


class _Unreadable(Exception):
    """The content to store cannot be read; the store is not at fault."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _store_errors(name: str) -> Iterator[None]:
    try:
        yield
    except _Unreadable as unreadable:
        raise unreadable.error from unreadable
    except OSError as error:
        kind = NoRoom if error.errno in _FULL else Unreachable
        raise kind(f"the store fails on {name}: {error.strerror or error}") from error
    except UnsafePath as error:
        raise Unreachable(f"the store cannot hold {name}: {error}") from error
