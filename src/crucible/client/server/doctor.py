"""The checks of `crucible doctor`: what Crucible needs of this computer, each with its fix."""

from __future__ import annotations

import enum
import errno
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crucible.core.compute.resources import GiB, MiB, format_memory

NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
    ]
)
LOW_DISK = 1 * GiB
NO_DISK = 100 * MiB
OLDEST = (3, 11)

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class CheckStatus(enum.StrEnum):
    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    name: str
    state: CheckStatus
    detail: str
    fix: str = ""

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "state": self.state.value, "detail": self.detail, "fix": self.fix}


def _can_listen() -> str | None:
    """Return None, or why no port of 127.0.0.1 can be opened."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
    except OSError as error:
        return error.strerror or str(error)
    return None


def _cannot_write(folder: Path) -> str | None:
    """Return None, or why the folder cannot be written to. A full disk is another check."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return None if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
    return None


@dataclass(frozen=True)
class SystemInfo:
    """This computer, as the checks see it; tests replace parts of it."""

    environ: Mapping[str, str]
    version: tuple[int, ...] = tuple(sys.version_info[:3])
    executable: str = sys.executable
    now: Callable[[], float] = time.time
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    can_listen: Callable[[], str | None] = _can_listen
    cannot_write: Callable[[Path], str | None] = _cannot_write
    mounts: Path = _MOUNTS

    def which(self, name: str) -> str | None:
        beside = os.path.join(os.path.dirname(self.executable), name)
        return shutil.which(name, path=self.environ.get("PATH", os.defpath)) or (
            beside if os.access(beside, os.X_OK) else None
        )


def check_machine(machine: SystemInfo, home: Path) -> Iterator[Check]:
    """Yield all checks that need no server."""
    yield _python(machine)
    yield from _home(machine, home)
    yield _clock(machine)
    yield _ports(machine)
    yield _tool(machine, "uv", "builds environments", "pip install uv")
    yield _tool(machine, "git", "records commits and fetches repositories", "apt install git")
    for name, purpose in (
        ("docker", "containers"),
        ("nvidia-smi", "NVIDIA GPUs"),
        ("ssh", "other computers"),
    ):
        path = machine.which(name)
        yield Check(name, CheckStatus.INFO, f"{path or 'not found'} ({purpose})")


def _python(machine: SystemInfo) -> Check:
    version = ".".join(map(str, machine.version))
    if machine.version < OLDEST:
        return Check(
            "python", CheckStatus.BROKEN, f"{version} at {machine.executable}", "Install Python 3.11 or newer."
        )
    return Check("python", CheckStatus.OK, f"{version} at {machine.executable}")


def _home(machine: SystemInfo, home: Path) -> Iterator[Check]:
    existing = next(path for path in (home, *home.parents) if path.exists())
    fix = "Set CRUCIBLE_HOME to a folder on a local disk that you may write to."
    why = machine.cannot_write(existing) if existing.is_dir() else f"{existing} is not a folder"
    if why is not None:
        yield Check("state folder", CheckStatus.BROKEN, f"{home} cannot be written: {why}", fix)
        return
    kind = filesystem_of(existing.resolve(), machine.mounts)
    if kind is not None and is_network(kind):
        yield Check("state folder", CheckStatus.BROKEN, f"{home} is on a network file system ({kind})", fix)
    else:
        yield Check("state folder", CheckStatus.OK, f"{home}" + (f" ({kind})" if kind else ""))
    yield _disk(machine, existing)


def _disk(machine: SystemInfo, folder: Path) -> Check:
    free = machine.free(folder)
    detail = f"{format_memory(free)} free at {folder}"
    fix = "Free some space, or set CRUCIBLE_HOME to a folder on another disk."
    if free < NO_DISK:
        return Check("disk", CheckStatus.BROKEN, detail, fix)
    return Check("disk", CheckStatus.WARNING, detail, fix) if free < LOW_DISK else Check("disk", CheckStatus.OK, detail)


def _clock(machine: SystemInfo) -> Check:
    """Check the clock against the age of our own files, which cannot be from the future."""
    installed_at = Path(__file__).stat().st_mtime
    utc_time = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(machine.now()))
    if machine.now() < installed_at - 86400:
        return Check("clock", CheckStatus.BROKEN, f"{utc_time} is before this installation", "Set the clock (NTP).")
    return Check("clock", CheckStatus.OK, utc_time)


def _ports(machine: SystemInfo) -> Check:
    why = machine.can_listen()
    if why is not None:
        return Check("ports", CheckStatus.BROKEN, f"no port on 127.0.0.1: {why}", "Check the loopback interface.")
    return Check("ports", CheckStatus.OK, "ports of 127.0.0.1 can be opened")


def _tool(machine: SystemInfo, name: str, purpose: str, how: str) -> Check:
    path = machine.which(name)
    if path is None:
        return Check(name, CheckStatus.WARNING, f"not found ({purpose})", f"Install it: {how}.")
    return Check(name, CheckStatus.OK, path)


def is_network(filesystem: str) -> bool:
    kind, _, program = filesystem.partition(".")
    return kind in NETWORK or (kind == "fuse" and program not in ("", "overlayfs", "fuse-overlayfs", "ntfs"))


def filesystem_of(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of the file system that holds the resolved `path`; None if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 6 or not right:
            continue
        point = PurePosixPath(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of two mounts on the same point the later one covers the earlier.
        if PurePosixPath(path).is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), right.split(" ", 1)[0])
    return best[1] if best else None
