"""What can go wrong with stored things.

StorageError     the store cannot do it (Trouble)
├── NotFound     there is no such object (also core's NotFound)
├── StoreFull    no room is left (also core's DiskFull)
└── HashMismatch what arrived is not what was announced (also core's BadInput)
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import obstore.exceptions

from crucible.core import errors

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class StorageError(errors.Trouble):
    code = "storage"


class NotFound(errors.NotFound, StorageError):
    """Nothing is stored under this key."""


class StoreFull(errors.DiskFull, StorageError):
    """The disk, or our share of it, is full. Nothing was stored."""


class HashMismatch(errors.BadInput, StorageError):
    """The content does not have the hash that was announced. Nothing was stored."""

    code = "hash_mismatch"


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Turn what the file system and the object store raise about `key` into errors of this room."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"Nothing is stored as {key!r}.", key=key) from error
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _from_store(key, error) from error


def _from_store(key: str, error: Exception) -> StorageError:
    text = str(error)
    why = text.splitlines()[0] if text else type(error).__name__
    if _errno(error, why) in _NO_ROOM:
        return StoreFull(
            f"There is no room left to store {key!r}.",
            why=why,
            fix="Free some space on the disk of the store.",
            key=key,
        )
    return StorageError(f"The store failed on {key!r}.", why=why, key=key)


def _errno(error: Exception, text: str) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    found = _OS_ERROR.search(text)
    return int(found.group(1)) if found else None
