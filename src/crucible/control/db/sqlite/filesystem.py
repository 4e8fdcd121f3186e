"""Find the file system of a path in the kernel's mount table, and refuse network file systems."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from crucible.control.db.port import NetworkFileSystem

MOUNTINFO = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs"}
)
NETWORK_FUSE = frozenset(
    {"afs", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "davfs", "davfs2", "gcsfuse", "glusterfs", "goofys"}
    | {"juicefs", "mount-s3", "mountpoint-s3", "rclone", "s3fs", "smbnetfs", "sshfs", "vmhgfs-fuse", "weed"}
)

_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_table() -> str:
    """Return the text of the kernel's mount table; empty if there is none (macOS)."""
    try:
        return MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def filesystem_of(path: PurePath, mountinfo_text: str) -> str | None:
    """Return the type of the file system of the absolute, resolved `path`, or None if unknown."""
    best: tuple[int, str] | None = None
    for line in mountinfo_text.splitlines():
        mount = _parse(line)
        # Of two mounts on the same point, the later one hides the earlier.
        if mount and path.is_relative_to(mount[0]) and (best is None or len(mount[0].parts) >= best[0]):
            best = (len(mount[0].parts), mount[1])
    return best[1] if best else None


def is_network(filesystem: str) -> bool:
    kind, _, program = filesystem.partition(".")
    return kind in NETWORK or (kind in ("fuse", "fuseblk") and program in NETWORK_FUSE)


def refuse_network(path: PurePath, mountinfo_text: str) -> None:
    """Raise NetworkFileSystem if `path` is where SQLite's locks and syncs cannot be trusted."""
    filesystem = filesystem_of(path, mountinfo_text)
    if filesystem is not None and is_network(filesystem):
        raise NetworkFileSystem(
            f"{path} is on a network file system ({filesystem}).",
            why="Locks and syncs cannot be trusted there, so the database could be damaged.",
            fix="Set CRUCIBLE_HOME to a folder on a local disk.",
            path=str(path),
            filesystem=filesystem,
        )


def _parse(line: str) -> tuple[PurePath, str] | None:
    """Return mount point and type of a line, or None if it is not valid.

    A line is `36 35 98:0 /root /point rw,... [optional ...] - type source ...`.
    """
    left, separator, right = line.partition(" - ")
    fields = left.split(" ")
    if not separator or len(fields) < 6:
        return None
    point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
    return PurePath(point), right.split(" ", 1)[0]
