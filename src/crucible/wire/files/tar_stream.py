"""Read an untrusted tar, plain or gzipped, member by member and within limits.

It does not use `tarfile`'s own loop, which treats a broken header as the end of the archive and reads name records of
any size into memory. Names are returned as they are in the archive; the caller decides what is allowed.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Union

FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
FOLDER = tarfile.DIRTYPE
LINK = tarfile.SYMTYPE

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 256 * 1024
_MAX_NAME_RECORD = 64 * 1024
_MAX_PADDING = 1024 * 1024
_NAME_RECORDS = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class BadArchive(ValueError):
    """The archive is broken, hostile or over its limits; `reason` says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The archive is refused: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class Member:
    """One member; `content` yields exactly `size` bytes and must be read before the next member is taken."""

    name: str
    kind: bytes
    executable: bool
    target: str
    size: int
    content: Iterator[bytes]

    @property
    def kind_label(self) -> str:
        return _KINDS.get(self.kind, f"of unknown kind {self.kind!r}")


class _TarStream:
    """The decompressed bytes. Raises BadArchive for every error of the source."""

    def __init__(self, source: Union[BinaryIO, gzip.GzipFile]) -> None:
        self._source = source

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, fewer only at the end."""
        parts = []
        while size > 0:
            part = self._read_some(size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read_exactly(self, size: int) -> bytes:
        data = self.read(size)
        if len(data) != size:
            raise BadArchive("it is cut off")
        return data

    def content(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            data = self.read_exactly(min(left, _CHUNK))
            left -= len(data)
            yield data
        self.read_exactly(-size % _BLOCK)

    def read_padding(self) -> None:
        """Read to the end, which also checks the checksum of the compressed data."""
        padding = self.read(_MAX_PADDING)
        if padding.strip(b"\x00") or self.read(1):
            raise BadArchive("there is more after its end")

    def _read_some(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except EOFError as error:
            raise BadArchive("it is cut off") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadArchive(f"it is not a valid gzip file: {error}") from error


def read_members(source: BinaryIO, *, compressed: bool = True) -> Iterator[Member]:
    """Yield the members in order. Raises BadArchive for anything that is not a valid archive up to its end."""
    stream = _TarStream(gzip.GzipFile(fileobj=source, mode="rb") if compressed else source)
    while True:
        block = stream.read_exactly(_BLOCK)
        if not block.strip(b"\x00"):
            stream.read_padding()
            return
        info = _header(block)
        records: dict[bytes, dict[str, str]] = {}
        while info.type in _NAME_RECORDS:
            if info.type in records:
                raise BadArchive("it has a name record twice")
            records[info.type] = _name_record(info, stream)
            info = _header(stream.read_exactly(_BLOCK))
        names = {key: value for record in records.values() for key, value in record.items()}
        yield _member(info, names, stream)


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise BadArchive(f"it has a broken header: {error}") from error
    if info.size < 0:
        raise BadArchive("it has a header with a negative size")
    return info


def _member(info: tarfile.TarInfo, names: dict[str, str], stream: _TarStream) -> Member:
    size = _number(names["size"]) if "size" in names else info.size
    name = names.get("path", info.name)
    if info.type == FOLDER:
        name = name[:-1] if name.endswith("/") else name
    if size and info.type not in FILES:
        raise BadArchive(f"{name!a} is not a file and yet has content")
    executable = bool(info.mode & stat.S_IXUSR)
    target = names.get("linkpath", info.linkname)
    return Member(name, info.type, executable, target, size, stream.content(size))


def _name_record(info: tarfile.TarInfo, stream: _TarStream) -> dict[str, str]:
    """Return the fields of a record that precedes a member: `path`, `linkpath`, `size`."""
    if info.size > _MAX_NAME_RECORD:
        raise BadArchive("it has a name record that is too long")
    data = b"".join(stream.content(info.size))
    if info.type == tarfile.XHDTYPE:
        return dict(_pax_records(data))
    key = "path" if info.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
    return {key: _text(data[:-1] if data.endswith(b"\x00") else data)}


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the `length key=value` lines of a POSIX extended header."""
    start = 0
    while start < len(data):
        space = data.find(b" ", start, start + 10)
        end = start + _number(_text(data[start : max(start, space)]))
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadArchive("it has a broken name record")
        if key.startswith(b"GNU.sparse"):
            raise BadArchive("it has a sparse file in it")
        yield _text(key), _text(value)
        start = end


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadArchive("it has a broken name record")
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadArchive("it has a name that is not UTF-8") from error
