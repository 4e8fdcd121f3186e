"""Entries and files for tests of checkpoints."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile

from crucible.agent.checkpoints.listing import CheckpointEntry, FileStamp


def file(name: str, version: int = 1, size: int = 10) -> CheckpointEntry:
    return CheckpointEntry(name, False, version, version * 1000, (FileStamp("", size, version * 1000, version),))


def folder(name: str, *versions: int, inode: int = 1) -> CheckpointEntry:
    """Make a folder with a file for each version."""
    marks = tuple(FileStamp(f"f{n}", 10, version, n) for n, version in enumerate(versions))
    return CheckpointEntry(name, True, inode, 1, marks)


def zipped() -> bytes:
    """Make a zip like `torch.save` and `numpy.savez`: entries are stored uncompressed, each after its header."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        file.writestr("archive/data/0", bytes(range(256)) * 2)
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as nested:
            nested.writestr("x", b"y" * 20)
        file.writestr("archive/nested.zip", inner.getvalue())
    return raw.getvalue()


def zipped64() -> bytes:
    """Add the zip64 end, which torch always writes."""
    plain = zipped()
    at = plain.rfind(b"PK\x05\x06")
    _, _, _, _, count, length, start, _ = struct.unpack_from("<4s4H2LH", plain, at)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, at, 1)
    return plain[:at] + end64 + locator + plain[at:]


def safetensors() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [3], "data_offsets": [8, 20]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(range(20))


def npy() -> bytes:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 48


def hdf5(version: int = 0) -> bytes:
    size = 300
    if version < 2:
        head = bytes([version, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHL", 4, 16, 0)
        head += b"" if version == 0 else bytes(4)
    else:
        head = bytes([version, 8, 8, 0])
    raw = b"\x89HDF\r\n\x1a\n" + head + struct.pack("<QQQ", 0, 2**64 - 1, size)
    return raw.ljust(size, b"x")


def gzipped() -> bytes:
    return gzip.compress(b"weights " * 50, mtime=0) + gzip.compress(bytes(range(256)), mtime=0)


def tarred() -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("a", b"\0" * 2000), ("x" * 150, b"2" * 10)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return raw.getvalue().rstrip(b"\0").ljust(5632, b"\0")


def jsoned() -> bytes:
    return json.dumps({"step": 5, "losses": [1.5, 2.5], "text": "é"}).encode()


KNOWN = {
    "model.pt": zipped(),
    "large.ckpt": zipped64(),
    "arrays.npz": zipped(),
    "model.safetensors": safetensors(),
    "array.npy": npy(),
    "old.h5": hdf5(0),
    "older.hdf5": hdf5(1),
    "new.h5": hdf5(3),
    "noname": hdf5(2),
    "state.pkl.gz": gzipped(),
    "state.json": jsoned(),
}
"""A complete file of each known format, by a name that it may have."""
