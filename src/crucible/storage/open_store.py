"""Open a store by its address."""

from __future__ import annotations

from obstore.store import LocalStore

from crucible.storage.addresses import FolderAddress, parse_address
from crucible.storage.buckets import BucketStore
from crucible.storage.errors import translate_errors
from crucible.storage.folder import Folder
from crucible.storage.objects import ObjectStore
from crucible.storage.options import StoreOptions


def open_store(url: str, options: StoreOptions | None = None) -> ObjectStore | BucketStore:
    """Open the store at a path, `file:///path`, `s3://`, `gs://` or `az://bucket/prefix`. Raises BadAddress.

    Creates a missing folder. A bucket must exist; the first request to it comes with the first call. `options`: for
    buckets.
    """
    address = parse_address(url)
    if not isinstance(address, FolderAddress):
        return BucketStore(address, options)
    with translate_errors(str(address)):
        folder = Folder(address.path)
        return ObjectStore(LocalStore(address.path), folder)
