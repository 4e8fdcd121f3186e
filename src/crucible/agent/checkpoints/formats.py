"""Check whether a file of a known format is complete, by its own headers. Never raises for bad content.

Each function returns whether the open file of `size` bytes is complete; None if that would cost too much to find out.
Only truncation is detected; contents are not checked.
"""

from __future__ import annotations

import ast
import json
import re
import struct
import tarfile
import zlib
from typing import BinaryIO, Callable, Optional

Check = Callable[[BinaryIO, int], Optional[bool]]

MAX_JSON = 64 * 1024**2
MAX_GZIP = 1024**3
MAX_HEADER = 100 * 1024**2
_CHUNK = 1024 * 1024

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")
_NPY_TYPE = re.compile(r"[<>|=]([biufcSVU])(\d{1,6})")


def is_zip_whole(file: BinaryIO, size: int) -> bool | None:
    """Check a zip (`torch.save`, `.npz`, `.keras`): its directory is at the very end, and all listed entries exist."""
    end = _zip_end(file, size)
    if end is None:
        return False
    count, start, length, stands_at = end
    if start + length != stands_at or length > MAX_HEADER:
        return False
    directory = _read(file, start, length)
    at = 0
    for _ in range(count):
        at = _zip_entry(file, directory, at, start)
        if at < 0:
            return False
    return at == length


def _zip_end(file: BinaryIO, size: int) -> tuple[int, int, int, int] | None:
    """Return number of entries, start and length of the directory, and the offset of the record after it, or None."""
    tail = min(size, _END.size + 0xFFFF)
    data = _read(file, size - tail, tail)
    at = data.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(data):
        return None
    _, _, _, _, count, length, start, comment = _END.unpack_from(data, at)
    if at + _END.size + comment != len(data):
        return None
    stands_at = size - tail + at
    if count == 0xFFFF or 0xFFFFFFFF in (length, start):
        return _zip64_end(file, stands_at)
    return count, start, length, _before_locator(file, stands_at)


def _before_locator(file: BinaryIO, stands_at: int) -> int:
    """Return where the directory must end: some writers (torch) add a zip64 record even if it is not needed."""
    found = _zip64_end(file, stands_at)
    return stands_at if found is None else found[3]


def _zip64_end(file: BinaryIO, stands_at: int) -> tuple[int, int, int, int] | None:
    raw = _read(file, stands_at - _LOCATOR64.size, _LOCATOR64.size) if stands_at > _LOCATOR64.size else b""
    if len(raw) != _LOCATOR64.size or not raw.startswith(b"PK\x06\x07"):
        return None
    position = _LOCATOR64.unpack(raw)[2]
    raw = _read(file, position, _END64.size) if position + _END64.size <= stands_at else b""
    if len(raw) != _END64.size or not raw.startswith(b"PK\x06\x06"):
        return None
    values = _END64.unpack(raw)
    return values[7], values[9], values[8], position


def _zip_entry(file: BinaryIO, directory: bytes, at: int, end: int) -> int:
    """Return where the next entry of the directory begins; -1 if this one is broken or its content is missing."""
    if at + _CENTRAL.size > len(directory) or directory[at : at + 4] != b"PK\x01\x02":
        return -1
    values = _CENTRAL.unpack_from(directory, at)
    name, extra, comment, offset = values[12], values[13], values[14], values[18]
    if offset != 0xFFFFFFFF and (offset >= end or _read(file, offset, 4) != b"PK\x03\x04"):
        return -1
    return at + _CENTRAL.size + int(name) + int(extra) + int(comment)


def is_safetensors_whole(file: BinaryIO, size: int) -> bool | None:
    """Check that the last offset in the header is the end of the file."""
    raw = _read(file, 0, 8)
    length = int.from_bytes(raw, "little")
    if len(raw) < 8 or length > min(MAX_HEADER, size - 8):
        return False
    header = _json(_read(file, 8, length))
    if not isinstance(header, dict):
        return False
    ends = [_offset_end(value) for name, value in header.items() if name != "__metadata__"]
    return None not in ends and 8 + length + max((end for end in ends if end is not None), default=0) == size


def _offset_end(tensor: object) -> int | None:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    good = isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int)
    return offsets[1] if good and isinstance(offsets, list) else None


def is_npy_whole(file: BinaryIO, size: int) -> bool | None:
    """Check that the file has the size that follows from the shape and type in its header."""
    head = _read(file, 0, 12)
    if len(head) < 10:
        return False
    wide = head[6] >= 2
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    if start + length > size or length > MAX_HEADER:
        return False
    try:
        header = ast.literal_eval(_read(file, start, length).decode("latin-1").strip())
        kind, count = _NPY_TYPE.fullmatch(str(header["descr"])), 1
        for axis in header["shape"]:
            count *= int(axis)
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        return False
    if kind is None:
        return None
    width = int(kind.group(2)) * (4 if kind.group(1) == "U" else 1)
    return start + length + count * width == size


def is_hdf5_whole(file: BinaryIO, size: int) -> bool | None:
    """Check that the superblock names the end of the file, which it does only after the file was closed."""
    raw = _read(file, 0, 128)
    version = raw[8] if len(raw) > 13 else None
    if version in (0, 1):
        width, at = raw[13], 24 if version == 0 else 28
    elif version in (2, 3):
        width, at = raw[9], 12
    else:
        return False if version is None else None
    if width not in (4, 8) or len(raw) < at + 3 * width:
        return False
    is_open = version == 3 and raw[11] & 1
    end = int.from_bytes(raw[at + 2 * width : at + 3 * width], "little")
    return not is_open and end == size


def is_json_whole(file: BinaryIO, size: int) -> bool | None:
    if size > MAX_JSON:
        return None
    value = _json(_read(file, 0, size))
    # A truncated number is still a valid number, so it shows nothing.
    return None if isinstance(value, (int, float)) and not isinstance(value, bool) else value is not _BROKEN


_BROKEN = object()


def _json(data: bytes) -> object:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return _BROKEN
    return value


def is_gzip_whole(file: BinaryIO, size: int) -> bool | None:
    """Check a gzip file by decompressing all of it, which is the only way."""
    if size > MAX_GZIP:
        return None
    file.seek(0)
    left = b""
    while left or (left := file.read(_CHUNK)):
        after = _after_member(file, left)
        if after is None:
            return False
        left = after.lstrip(b"\0")
    return True


def _after_member(file: BinaryIO, data: bytes) -> bytes | None:
    """Return what was read beyond the end of the gzip member that begins with `data`; None if it is truncated."""
    member = zlib.decompressobj(wbits=31)
    try:
        while data:
            # In small chunks, because a small file may decompress to a very large one.
            unpacked = member.decompress(data, _CHUNK)
            while member.unconsumed_tail or (len(unpacked) == _CHUNK and not member.eof):
                unpacked = member.decompress(member.unconsumed_tail, _CHUNK)
            if member.eof:
                return member.unused_data
            data = file.read(_CHUNK)
    except zlib.error:
        pass
    return None


def is_tar_whole(file: BinaryIO, size: int) -> bool | None:
    """Check that the headers of a tar lead to the empty blocks at its end."""
    at = 0
    while at + tarfile.BLOCKSIZE <= size:
        block = _read(file, at, tarfile.BLOCKSIZE)
        if not block.strip(b"\0"):
            return at + 2 * tarfile.BLOCKSIZE <= size
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError):
            return False
        if info.type == tarfile.GNUTYPE_SPARSE or info.size < 0 or _has_size_record(file, info, at):
            return None
        has_data = info.isreg() or info.type not in tarfile.SUPPORTED_TYPES or info.type in _TAR_RECORDS
        at += tarfile.BLOCKSIZE + (-(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE if has_data else 0)
    return False


_TAR_RECORDS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


def _has_size_record(file: BinaryIO, info: tarfile.TarInfo, at: int) -> bool:
    """Return whether a pax record holds the next member's size instead of its header, as for very large members."""
    return info.type == tarfile.XHDTYPE and b" size=" in _read(file, at + tarfile.BLOCKSIZE, min(info.size, _CHUNK))


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    if start < 0:
        return b""
    file.seek(start)
    return file.read(size)
