"""Pack deterministic tar.gz archives, and unpack untrusted ones.

Archives hold only files, folders, and symbolic links that stay inside; anything else is refused, never skipped.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Union

from crucible.wire.files.disk_space import DiskSpace
from crucible.wire.files.paths import MAX_NAME_BYTES, UnsafePath, has_link_loop, is_inside, safe_join, safe_name
from crucible.wire.files.tar_stream import FILES, FOLDER, LINK, BadArchive, Member, read_members

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Link:
    """A symbolic link; `target` is relative to the folder that the link is in."""

    target: str


@dataclass(frozen=True)
class Folder:
    """An empty folder. Folders with content need no entry."""


@dataclass(frozen=True)
class Entry:
    """One item to pack: its name in the archive and its content (the path of a file, or the bytes)."""

    name: str
    source: Union[Path, bytes, Link, Folder]
    size: int = 0
    executable: bool = False

    @classmethod
    def of_bytes(cls, name: str, data: bytes, *, executable: bool = False) -> Entry:
        return cls(name, data, len(data), executable)

    @classmethod
    def of_file(cls, name: str, path: Path) -> Entry:
        info = path.stat()
        return cls(name, path, info.st_size, bool(info.st_mode & stat.S_IXUSR))


def pack(files: Iterable[Entry], out: BinaryIO, *, compressed: bool = True) -> None:
    """Write the entries as a tar.gz: the same names, contents and executable bits give the same bytes.

    With `compressed=False` the result is a plain tar, for content that does not compress. Order, times, owners
    and other mode bits do not matter (the version of zlib may). Raises UnsafePath for a name or link that leads
    out, BadArchive for a repeated name, OSError for a file that cannot be read or shrinks meanwhile.
    """
    entries = sorted(files, key=lambda entry: entry.name)
    _check_names(entries)
    if not compressed:
        _write_tar(entries, out)
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as packed:
        _write_tar(entries, packed)


def unpack(source: BinaryIO, dest: Path, *, max_bytes: int, max_files: int, compressed: bool = True) -> list[str]:
    """Unpack a tar.gz into the new folder `dest` and return the sorted names of its files and links.

    With `compressed=False` the source is a plain tar. `dest` must be absent or empty (else FileExistsError). It
    appears complete or not at all: the work is done in a folder beside it. `max_bytes` limits the content,
    `max_files` the number of files and folders; both are enforced while reading. Raises BadArchive, and NotEnoughSpace
    before the disk is full. Owners, times and all mode bits but "executable" are ignored. The files are not flushed
    to disk: after a power failure, unpack again.
    """
    if dest.is_symlink() or (dest.exists() and (not dest.is_dir() or any(dest.iterdir()))):
        raise FileExistsError(f"{dest} exists and is not an empty folder")
    work = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=dest.parent))
    try:
        unpacking = _Unpacker(work, max_bytes, max_files)
        for member in read_members(source, compressed=compressed):
            unpacking.add(member)
        unpacking.make_links()
        work.chmod(0o755)
        os.rename(work, dest)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return sorted(unpacking.names)


# Packing


def _check_names(entries: list[Entry]) -> None:
    kinds: dict[str, bool] = {}
    for entry in entries:
        if safe_name(entry.name) in kinds:
            raise BadArchive(f"{entry.name!a} is there twice")
        kinds[entry.name] = isinstance(entry.source, Folder)
        if isinstance(entry.source, Link):
            _check_link(entry.name, entry.source.target)
    for name in kinds:
        if not all(kinds.get(parent, True) for parent in _parents(name)):
            raise BadArchive(f"{name!a} is below something that is not a folder")


def _parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _check_link(name: str, target: str) -> None:
    """Raise UnsafePath unless `target`, relative to the folder of `name`, stays below the top. Checks the text only."""
    if not target or "\x00" in target or "\\" in target or os.path.isabs(target):
        raise UnsafePath(name, f"is a link to {target!a}, which is not a relative path")
    if len(target.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
        raise UnsafePath(name, f"is a link to a path longer than {MAX_NAME_BYTES} bytes")
    end = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if end == ".." or end.startswith("../"):
        raise UnsafePath(name, f"is a link to {target!a}, which is outside its folder")


def _write_tar(entries: list[Entry], out: Union[BinaryIO, gzip.GzipFile]) -> None:
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for entry in entries:
            _add(tar, entry)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode = 0o755 if entry.executable else 0o644
    if isinstance(entry.source, Link):
        info.type, info.linkname = tarfile.SYMTYPE, entry.source.target
        tar.addfile(info)
    elif isinstance(entry.source, Folder):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)
    elif isinstance(entry.source, bytes):
        info.size = len(entry.source)
        tar.addfile(info, io.BytesIO(entry.source))
    else:
        with _open_regular(entry.source) as content:
            info.size = os.fstat(content.fileno()).st_size
            tar.addfile(info, content)


def _open_regular(path: Path) -> BinaryIO:
    """Open a file only if it still is a regular one: not a link to elsewhere, not a pipe that would block."""
    content = os.fdopen(os.open(path, os.O_RDONLY | _NOFOLLOW | _NONBLOCK | _BINARY), "rb")
    if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
        content.close()
        raise OSError(f"{path} is not a regular file")
    return content


# Unpacking


class _Unpacker:
    """Builds the tree in `root`. Links are made last, so that nothing is written through one."""

    def __init__(self, root: Path, max_bytes: int, max_files: int) -> None:
        self._root = root
        self._max_bytes = self._bytes_left = max_bytes
        self._max_files = self._files_left = max_files
        self._space = DiskSpace(root)
        self._links: list[Member] = []
        self.names: set[str] = set()
        self._folders: set[str] = set()

    def add(self, member: Member) -> None:
        """Add one member. `tar -C folder .` names the top itself and starts every name with `./`; both are fine."""
        if member.kind == FOLDER and member.name in (".", "./", ""):
            self._take_folder(".")
            return
        if member.name.startswith("./"):
            member = replace(member, name=member.name[2:])
        path = self._path(member.name)
        if member.kind in FILES:
            self._take_name(member.name)
            self._write(path, member)
        elif member.kind == FOLDER:
            self._take_folder(member.name)
            self._make_folder(path, member.name)
        elif member.kind == LINK:
            self._take_name(member.name)
            self._links.append(member)
        else:
            raise BadArchive(f"{member.name!a} is {member.kind_label}, which is not allowed")

    def make_links(self) -> None:
        """Make the links, after all their parent folders: a link cannot then replace another link's parent."""
        for link in self._links:
            self._make_folder(self._path(link.name).parent, link.name)
        for link in self._links:
            self._make_link(self._root / link.name, link)
        for link in self._links:
            self._check_inside(link.name)

    def _path(self, name: str) -> Path:
        try:
            return safe_join(self._root, name)
        except UnsafePath as error:
            raise BadArchive(str(error)) from error

    def _take_name(self, name: str) -> None:
        if name in self.names:
            raise BadArchive(f"{name!a} is there twice")
        self.names.add(name)
        self._count()

    def _take_folder(self, name: str) -> None:
        """Record a folder; each may occur once, else an archive could repeat the top folder without end."""
        if name in self._folders:
            raise BadArchive(f"{name!a} is there twice")
        self._folders.add(name)

    def _count(self) -> None:
        self._files_left -= 1
        if self._files_left < 0:
            raise BadArchive(f"it holds more than {self._max_files} files")

    def _write(self, path: Path, member: Member) -> None:
        self._bytes_left -= member.size
        if self._bytes_left < 0:
            raise BadArchive(f"it unpacks to more than {self._max_bytes} bytes")
        self._space.check(member.size)
        self._make_folder(path.parent, member.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
        try:
            descriptor = os.open(path, flags, 0o755 if member.executable else 0o644)
        except (FileExistsError, IsADirectoryError) as error:
            raise BadArchive(f"{member.name!a} is there twice") from error
        with os.fdopen(descriptor, "wb") as file:
            for chunk in member.content:
                self._space.take(len(chunk))
                file.write(chunk)

    def _make_folder(self, folder: Path, name: str) -> None:
        missing = []
        while not os.path.lexists(folder):
            missing.append(folder)
            folder = folder.parent
        if not folder.is_dir():
            raise BadArchive(f"{name!a} is below something that is not a folder")
        for new in reversed(missing):
            self._count()
            new.mkdir(mode=0o755)

    def _make_link(self, path: Path, link: Member) -> None:
        try:
            _check_link(link.name, link.target)
            os.symlink(link.target, path)
        except UnsafePath as error:
            raise BadArchive(str(error)) from error
        except FileExistsError as error:
            raise BadArchive(f"{link.name!a} is there twice") from error

    def _check_inside(self, name: str) -> None:
        path = self._root / name
        if has_link_loop(path):
            raise BadArchive(f"{name!a} is a link through too many links")
        if not is_inside(self._root, path):
            raise BadArchive(f"{name!a} is a link that leads outside")
