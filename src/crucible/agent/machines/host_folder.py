"""The folder of one deployment on a host, below the home. It is named by the node, as several hosts may share a home.

machines/         the folder of each machine
agents.address    where agents here find the server: a socket or a port at the end of its tunnel, read at every call
agent/            the agent's files
envs/, cache/, pythons/, tmp/   what attempts share; kept up to a size
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from crucible.wire.documents.bootstrap import AGENTS_ADDRESS_FILE
from crucible.wire.files.private import make_private
from crucible.wire.machines.folder import MachineFolder, list_machines

SOCKET_PATH_BYTES = 90
"""What every system allows for the path of a socket, with some to spare for the name."""
NAME_BYTES = 12
PROBE_SECONDS = 2.0
CACHES = ("cache", "envs", "agent")
"""Folders of what can be made again, in which each entry is removed on its own. Pythons go after all of them."""


@dataclass(frozen=True)
class HostFolder:
    """`path`: that of HostFolder in backends/ssh/connection.py, below the home."""

    path: Path

    @property
    def machines(self) -> Path:
        return self.path / "machines"

    @property
    def address_file(self) -> Path:
        return self.path / AGENTS_ADDRESS_FILE

    def make(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def list_machines(self) -> list[MachineFolder]:
        return list(list_machines(self.machines))

    def add_variables(self, environ: Mapping[str, str], *, tmp_noexec: bool) -> dict[str, str]:
        """Return the variables of a host process here: caches are in this folder, unless the user chose another.

        `tmp_noexec`: programs in /tmp cannot be executed, so temporary files are in this folder too.
        """
        own = {
            "UV_CACHE_DIR": self.path / "cache" / "uv",
            "PIP_CACHE_DIR": self.path / "cache" / "pip",
            "UV_PYTHON_INSTALL_DIR": self.path / "pythons",
        }
        if tmp_noexec and "TMPDIR" not in environ:
            own["TMPDIR"] = self.path / "tmp"
            own["TMPDIR"].mkdir(mode=0o700, exist_ok=True)
        return {**{name: str(path) for name, path in own.items()}, **environ}

    # The end of the tunnel

    def make_tunnel_folder(self) -> Path:
        """Return a private folder whose path is short enough for a socket. Raises OSError."""
        self.make()
        inside, short = self.path / "tunnel", self._short_folder
        return make_private(inside if len(os.fsencode(inside)) + NAME_BYTES <= SOCKET_PATH_BYTES else short)

    @property
    def _short_folder(self) -> Path:
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path("/tmp", f"crucible-{os.geteuid()}-{digest}")  # noqa: S108 - make_private refuses another user's

    def write_address(self, url: str) -> None:
        """Write the URL at which agents here call the server, and remove the sockets of earlier tunnels."""
        part = self.address_file.with_name(f".{AGENTS_ADDRESS_FILE}.{os.getpid()}")
        part.write_text(url, encoding="utf-8")
        part.replace(self.address_file)
        current = _socket_of(url)
        for folder in (self.path / "tunnel", self._short_folder):
            for left in _entries(folder):
                if str(left) != current and stat.S_ISSOCK(left.lstat().st_mode):
                    left.unlink()

    def tunnel_answers(self) -> bool:
        """Return whether the address that agents here use accepts connections."""
        try:
            return _listens(self.address_file.read_text(encoding="utf-8").strip())
        except (OSError, ValueError):
            return False

    # Removing

    def prune(self, limit: int) -> None:
        """Remove the tunnel's end, and caches beyond `limit` bytes. Call it once no machine is left."""
        self.address_file.unlink(missing_ok=True)
        for folder in (self.path / "tunnel", self.path / "tmp", self._short_folder):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.machines.rmdir()
        self._trim(limit)
        self._remove_empty()

    def _remove_empty(self) -> None:
        """Remove empty folders, up to `.crucible` in the home."""
        for name in (*CACHES, "pythons"):
            with contextlib.suppress(OSError):
                (self.path / name).rmdir()
        with contextlib.suppress(OSError):  # something is left there, or another deployment or node has something
            for folder in (self.path, *list(self.path.parents)[:3]):
                folder.rmdir()

    def _trim(self, limit: int) -> None:
        """Remove caches, those that were unused for longest first, until they have at most `limit` bytes."""
        entries = [entry for name in CACHES for entry in _entries(self.path / name)]
        sizes = {entry: _size(entry) for entry in entries}
        total = sum(sizes.values()) + _size(self.path / "pythons")
        for entry in sorted(entries, key=_last_use):
            if total <= limit:
                return
            _remove(entry)
            total -= sizes[entry]
        if total > limit:
            shutil.rmtree(self.path / "pythons", ignore_errors=True)

    def remove(self) -> int:
        """Remove everything, and empty folders above it. Return the number of bytes removed."""
        size = _size(self.path)
        shutil.rmtree(self._short_folder, ignore_errors=True)
        if self.path.exists():
            shutil.rmtree(self.path)
            self.path.mkdir()
        self._remove_empty()
        return size


def _listens(url: str) -> bool:
    path, parts = _socket_of(url), urlsplit(url)
    if not path and not parts.hostname:
        return False
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_STREAM) as caller:
        caller.settimeout(PROBE_SECONDS)
        caller.connect(path or (parts.hostname or "", parts.port or 0))
    return True


def _socket_of(url: str) -> str:
    """Return the path of a socket from its address; empty for the address of a port."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "unix" else ""


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from sorted(folder.iterdir())


def _last_use(path: Path) -> float:
    """Return when an entry was made, or used: the agent sets its time then."""
    try:
        found = path.stat()
    except OSError:
        return time.time()
    return found.st_mtime


def _size(path: Path) -> int:
    """Return the bytes that a file or a folder takes on the disk. Files may vanish meanwhile."""
    total = 0
    with contextlib.suppress(OSError):
        total += path.lstat().st_blocks * 512
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
