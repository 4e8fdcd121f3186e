"""List the checkpoint folder: its entries, and for each file a stamp that shows changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crucible.wire.documents.checkpoint_names import is_unfinished


@dataclass(frozen=True)
class FileStamp:
    """A file below an entry. `path` is relative to the entry, and empty for an entry that is a file itself."""

    path: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class CheckpointEntry:
    """A name in the checkpoint folder. If two listings give equal entries, it was not written to in between.

    `inode` and `mtime_ns` are those of the file or folder itself. `moved_in`: its last change was no write, as after a
    rename into the folder.
    """

    name: str
    is_folder: bool
    inode: int
    mtime_ns: int
    files: tuple[FileStamp, ...]
    moved_in: bool = field(default=False, compare=False)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def newest_ns(self) -> int:
        """When it was last written to, by the file system's clock."""
        return max((file.mtime_ns for file in self.files), default=self.mtime_ns)


def list_entries(folder: Path) -> tuple[CheckpointEntry, ...]:
    """Return everything in the folder that may be a checkpoint, by name.

    Skips names of unfinished files, links, special files, and entries that disappear meanwhile.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if not is_unfinished(name))
    except OSError:
        return ()
    entries = (read_entry(folder, name) for name in names)
    return tuple(entry for entry in entries if entry is not None)


def read_entry(folder: Path, name: str) -> CheckpointEntry | None:
    """Return the current entry; None if it does not exist, or changes too fast to be read."""
    path = folder / name
    try:
        info = path.lstat()
        if stat.S_ISREG(info.st_mode):
            return _entry(name, info, (file_stamp("", info),))
        if stat.S_ISDIR(info.st_mode):
            return _entry(name, info, tuple(sorted(_marks(path), key=_by_path)))
    except OSError:
        return None
    return None


def _entry(name: str, info: os.stat_result, files: tuple[FileStamp, ...]) -> CheckpointEntry:
    """Make an entry. One whose ctime is after all mtimes was moved in: writing sets both times, a rename only ctime."""
    written = max([info.st_mtime_ns, *(file.mtime_ns for file in files)])
    folder = stat.S_ISDIR(info.st_mode)
    return CheckpointEntry(name, folder, info.st_ino, info.st_mtime_ns, files, moved_in=info.st_ctime_ns > written)


def _marks(top: Path) -> Iterator[FileStamp]:
    """Yield every file and empty folder below the folder; the path of an empty folder ends in `/`."""
    left = [(str(top), "")]
    while left:
        folder, below = left.pop()
        with os.scandir(folder) as found:
            children = list(found)
        if below and not children:
            yield file_stamp(below, os.lstat(folder))
        for child in children:
            if child.is_dir(follow_symlinks=False):
                left.append((child.path, f"{below}{child.name}/"))
            else:
                yield file_stamp(f"{below}{child.name}", child.stat(follow_symlinks=False))


def file_stamp(path: str, info: os.stat_result) -> FileStamp:
    return FileStamp(path, info.st_size, info.st_mtime_ns, info.st_ino)


def _by_path(mark: FileStamp) -> str:
    return mark.path
