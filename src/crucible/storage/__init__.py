"""Object stores, and what is kept in them: bundles, log segments, artifacts."""

from crucible.storage.bundles import BundleStore
from crucible.storage.errors import HashMismatch, NotFound, StorageError, StoreFull
from crucible.storage.logs import LogStore, Segment
from crucible.storage.store import ObjectStore, Store, Stored, open_store

__all__ = [
    "BundleStore",
    "HashMismatch",
    "LogStore",
    "NotFound",
    "ObjectStore",
    "Segment",
    "StorageError",
    "Store",
    "StoreFull",
    "Stored",
    "open_store",
]
