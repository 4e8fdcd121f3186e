"""Opening a store by its address."""

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

    A folder is made if it is missing. A bucket is not: it has to be there, and is first reached by the first
    call. `options` are for buckets.
    """
    address = parse_address(url)
    if not isinstance(address, FolderAddress):
        return BucketStore(address, options)
    with translate_errors(str(address)):
        folder = Folder(address.path)
        return ObjectStore(LocalStore(address.path), folder)
