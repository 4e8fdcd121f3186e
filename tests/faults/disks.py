"""Small file systems that tests fill, seal, break and repair."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MiB = 1024**2


class Disk:
    """A file system mounted at `path`, filled by one file whose removal empties it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, leave: int = 0) -> None:
        """Use all free space except `leave` bytes, including space that is freed meanwhile."""
        with open(self._filler, "ab", buffering=0) as file:
            spare = self.free - leave
            if spare > MiB:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size + spare - MiB)
            file.seek(0, os.SEEK_END)
            for size in (4096, 1) if leave == 0 else (4096,):
                with contextlib.suppress(OSError):
                    while self.free > leave or leave == 0:
                        file.write(bytes(size))

    def make_room(self) -> None:
        self._filler.unlink()

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.path).free


@contextlib.contextmanager
def small_disk(path: Path, size: int) -> Iterator[Disk]:
    """Yield a file system of `size` bytes mounted at `path`; skip the test if mounting is impossible."""
    path.mkdir(parents=True)
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    asked = [mount, "-t", "tmpfs", "-o", f"size={size}", "crucible-test", str(path)]
    made = subprocess.run(asked, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class FailingDisk(Disk):
    """A file system in a file, which can be made to refuse every write."""

    def __init__(self, path: Path, image: Path) -> None:
        super().__init__(path)
        self._image = image
        path.mkdir(parents=True)
        self._mount()

    def seal(self) -> None:
        """Make it read-only, including for open files."""
        self._chattr("+i")

    def unseal(self) -> None:
        self._chattr("-i")

    def fail(self) -> None:
        """Simulate damage: read-only, including for open files, until it is repaired."""
        device = _run("findmnt", "-no", "SOURCE", str(self.path)).rpartition("/")[2].strip()
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("test")

    def repair(self) -> None:
        """Repair it; no file may be open on it."""
        _run("umount", str(self.path))
        subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True, check=False)
        self._mount()

    def close(self) -> None:
        _run("umount", "-l", str(self.path))

    def _chattr(self, change: str) -> None:
        """Change all but sockets, which have no such attribute, and files that are removed meanwhile."""
        _run(
            "find",
            str(self.path),
            "-ignore_readdir_race",
            "!",
            "-type",
            "s",
            "-exec",
            "chattr",
            "-f",
            change,
            "{}",
            ";",
        )

    def _mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.path))


@contextlib.contextmanager
def failing_disk(path: Path, image: Path, size: int) -> Iterator[FailingDisk]:
    """Yield a file system of `size` bytes in the file `image`, mounted at `path`; skip the test if impossible."""
    missing = [tool for tool in ("mount", "mkfs.ext4", "e2fsck", "chattr", "findmnt") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a file system in a file needs root and {', '.join(missing) or 'nothing else'}")
    with open(image, "wb") as file:
        file.truncate(size)
    _run("mkfs.ext4", "-q", "-F", str(image))
    try:
        disk = FailingDisk(path, image)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a file system in a file cannot be mounted here: {error.stderr.strip()}")
    try:
        yield disk
    finally:
        disk.close()


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
