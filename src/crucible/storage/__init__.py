"""Object stores, and the bundles, log segments and artifacts in them."""

from crucible.storage.addresses import BadAddress
from crucible.storage.buckets import BucketStore
from crucible.storage.bundles import BundleStore
from crucible.storage.errors import (
    HashMismatch,
    NoSuchStore,
    NotFound,
    StorageError,
    StoreDenied,
    StoreFull,
    StoreUnreachable,
)
from crucible.storage.logs import LogStore, Segment
from crucible.storage.objects import ObjectStore
from crucible.storage.open_store import open_store
from crucible.storage.options import StoreOptions
from crucible.storage.store import Signs, Store, Stored, read_either

__all__ = [
    "BadAddress",
    "BucketStore",
    "BundleStore",
    "HashMismatch",
    "LogStore",
    "NoSuchStore",
    "NotFound",
    "ObjectStore",
    "Segment",
    "Signs",
    "StorageError",
    "Store",
    "StoreDenied",
    "StoreFull",
    "StoreOptions",
    "StoreUnreachable",
    "Stored",
    "open_store",
    "read_either",
]
