"""Check whether a checkpoint file or folder is truncated, by the structure of its files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from crucible.agent.checkpoints import formats
from crucible.agent.checkpoints.listing import CheckpointEntry

_BY_START: tuple[tuple[bytes, formats.Check], ...] = (
    (b"PK\x03\x04", formats.is_zip_whole),
    (b"PK\x05\x06", formats.is_zip_whole),
    (b"\x1f\x8b", formats.is_gzip_whole),
    (b"\x89HDF\r\n\x1a\n", formats.is_hdf5_whole),
    (b"\x93NUMPY", formats.is_npy_whole),
)
_BY_SUFFIX: dict[str, formats.Check] = {
    ".safetensors": formats.is_safetensors_whole,
    ".json": formats.is_json_whole,
    ".tar": formats.is_tar_whole,
}
_NEEDS_START: dict[str, bytes] = {
    ".npz": b"PK",
    ".zip": b"PK",
    ".keras": b"PK",
    ".gz": b"\x1f\x8b",
    ".tgz": b"\x1f\x8b",
    ".h5": b"\x89HDF\r\n\x1a\n",
    ".hdf5": b"\x89HDF\r\n\x1a\n",
    ".npy": b"\x93NUMPY",
}
"""First bytes of files with these suffixes. Other files are truncated, or of another format."""


def why_folder_torn(path: Path, entry: CheckpointEntry) -> str | None:
    """Return why the folder at `path` is not whole, or None if nothing shows that. Raises OSError."""
    files = [mark.path for mark in entry.files if not mark.path.endswith("/")]
    if not files:
        return "there is no file in it"
    for name in files:
        if (path / name).is_symlink():
            continue
        with open(os.open(path / name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            why = why_torn(file, name)
        if why is not None:
            return f"{name}: {why}"
    return None


def why_torn(file: BinaryIO, name: str) -> str | None:
    """Return why the open file named `name` is not whole, or None."""
    info = os.fstat(file.fileno())
    if not stat.S_ISREG(info.st_mode):
        return "it is not a regular file"
    if info.st_size == 0:
        return "it is empty"
    file.seek(0)
    return None if _is_whole(file, info.st_size, name) is not False else "it is cut off"


def _is_whole(file: BinaryIO, size: int, name: str) -> bool | None:
    start = file.read(8)
    suffix = os.path.splitext(name)[1].lower()
    for beginning, check in _BY_START:
        if start.startswith(beginning):
            return check(file, size)
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix](file, size)
    if suffix in _NEEDS_START:
        return False
    return _is_begun(start, size)


def _is_begun(start: bytes, size: int) -> bool | None:
    """Return False (truncated) if the file ends within the first bytes of a known format, else None."""
    begun = size < 8 and any(beginning.startswith(start) for beginning, _ in _BY_START)
    return False if begun else None
