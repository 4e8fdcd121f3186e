"""The errors of stores.

StorageError         the store failed (Trouble)
├── NotFound         there is no such object (also core's NotFound)
├── NoSuchStore      there is no such bucket
├── StoreFull        no space is left (also core's DiskFull)
├── StoreDenied      the store does not accept our credentials
├── StoreUnreachable the store does not respond, or only with failures (also core's Unreachable)
├── HashMismatch     the content does not have the expected hash (also core's BadInput)
└── BadAddress       the text is not the address of a store (also core's BadInput; in addresses.py)
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import obstore.exceptions

from crucible.core import errors
from crucible.storage.client_errors import ClientError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_CHECK_STORE = "Check the folder or bucket of the setting 'store', then try again."
_FIXES = {
    errno.EMFILE: "Raise the limit of open files (ulimit -n), or close some connections to the server.",
    errno.ENFILE: "Too many files are open on this computer. Stop the programs that opened them.",
    errno.EROFS: "The disk of the store is read-only: repair it, then try again.",
    errno.EIO: "The disk of the store has errors: repair it, then try again.",
}


class StorageError(errors.Trouble):
    code = "storage"


class NotFound(errors.NotFound, StorageError):
    """Nothing is stored under this key."""


class NoSuchStore(StorageError):
    """The bucket or container does not exist."""

    code = "no_such_store"


class StoreFull(errors.DiskFull, StorageError):
    """The disk, or our quota on it, is full. Nothing was stored."""


class StoreDenied(StorageError):
    """The store refuses our credentials, or there are none. Not core's NotAllowed, which is about the caller's."""

    code = "store_denied"


class StoreUnreachable(errors.Unreachable, StorageError):
    """No response in time, or only failures. A put may have been stored, and then completely."""

    code = "store_unreachable"


class HashMismatch(errors.BadInput, StorageError):
    """The content does not have the expected hash. Nothing was stored."""

    code = "hash_mismatch"


@contextmanager
def translate_errors(key: str, store: str = "") -> Iterator[None]:
    """Turn errors of the file system and of the client about `key` into a StorageError.

    `store`: the address of a bucket, for the message.
    """
    try:
        yield
    except (OSError, obstore.exceptions.BaseError) as error:
        failure = ClientError.from_exception(error)
        cause = None if failure.shows_secrets else error
        raise _from_store(key, store, error, failure) from cause


def _from_store(key: str, store: str, error: Exception, failure: ClientError) -> StorageError:
    if failure.no_bucket:
        return _no_bucket(key, store, failure)
    if isinstance(error, FileNotFoundError):
        return NotFound(
            f"Nothing is stored as {key!r}.", fix="It may have been pruned. List the stored files.", key=key
        )
    if failure.errno in _NO_ROOM or failure.full:
        return _full(key, store, failure)
    if failure.no_credentials or failure.denied:
        return _denied(key, store, failure)
    if failure.unreachable:
        return _unreachable(key, store, failure)
    fix = _FIXES.get(failure.errno or 0, _CHECK_STORE)
    return StorageError(f"The store failed on {key!r}.", why=failure.why, fix=fix, key=key)


def _no_bucket(key: str, store: str, failure: ClientError) -> NoSuchStore:
    return NoSuchStore(
        f"The store {store or key} does not exist.",
        why=failure.why,
        fix="Create the bucket, or correct the setting 'store'.",
        key=key,
    )


def _full(key: str, store: str, failure: ClientError) -> StoreFull:
    where = f"in {store}, or raise its quota" if store else "on the disk of the store"
    return StoreFull(
        f"There is no room left to store {key!r}.", why=failure.why, fix=f"Free some space {where}.", key=key
    )


def _denied(key: str, store: str, failure: ClientError) -> StoreDenied:
    if failure.no_credentials:
        what, verb = f"There are no credentials for the store {store}.".replace(" .", "."), "Set"
    else:
        what, verb = f"The store {store} denies access to {key!r}.".replace("  ", " "), "Correct"
    return StoreDenied(
        what,
        why=failure.why,
        fix=f"{verb} store_access_key and store_secret_key, or the provider's own environment variables, "
        "and let them read, write, list and delete there.",
        key=key,
    )


def _unreachable(key: str, store: str, failure: ClientError) -> StoreUnreachable:
    return StoreUnreachable(
        f"The store {store} cannot be reached.".replace("  ", " "),
        why=failure.why,
        fix="Check the network and the setting store_endpoint, then try again.",
        key=key,
    )
