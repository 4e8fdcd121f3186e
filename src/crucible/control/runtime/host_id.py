"""Identify the computer of local backends, by a mark in the folder of their machines.

A host name is not enough: a restarted container has another one, and a cloned computer has the same. The folder is on a
local disk, so processes that read the same mark see the same processes, or their successors after a restart.
"""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crucible.control.db.port import NetworkFileSystem
from crucible.control.db.sqlite.filesystem import filesystem_of, is_network, mount_table

MARK = "place.id"


@dataclass(frozen=True)
class HostId:
    """`mark` identifies the computer; `host` and `folder` are for messages."""

    mark: str
    host: str
    folder: str


def read_host_id(folder: Path, mounts: str | None = None) -> HostId:
    """Return the id of this computer; mark the folder at first use. `mounts`: a mount table (default: the kernel's).

    Raises NetworkFileSystem: two computers that read one mark would each miss the other's processes.
    """
    real = Path(os.path.realpath(folder))
    filesystem = filesystem_of(real, mount_table() if mounts is None else mounts)
    if filesystem is not None and is_network(filesystem):
        raise NetworkFileSystem(
            f"{real} is on a network file system ({filesystem}).",
            why="Machines of this computer are its processes; another one would take them for lost.",
            fix="Set CRUCIBLE_LOCAL_FOLDER to a folder on a local disk.",
        )
    return HostId(_mark(real), platform.node(), str(real))


def _mark(folder: Path) -> str:
    """Return the folder's mark. If several processes create it at once, the first one's is used."""
    path = folder / MARK
    if not path.exists():
        fresh = folder / f".{MARK}.{secrets.token_hex(4)}"
        fresh.write_text(secrets.token_hex(16), encoding="ascii")
        with suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
    return path.read_text(encoding="ascii").strip()
