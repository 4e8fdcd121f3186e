"""The mount points of the cgroup hierarchies, and this process's cgroup in each."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

UNIFIED = ""
"""Key of the single hierarchy of cgroup v2; those of v1 have the names of their controllers."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One hierarchy. `root`: where it is mounted; `own`: our own folder in it (`root` if ours is not visible)."""

    root: str
    own: str


@dataclass(frozen=True)
class Mounts:
    by_controller: tuple[tuple[str, Mount], ...]

    @classmethod
    def parse(cls, mountinfo: str, cgroup: str) -> Mounts:
        """Parse the text of /proc/self/mountinfo and /proc/self/cgroup."""
        paths = dict(_own_paths(cgroup))
        found: dict[str, Mount] = {}
        for line in mountinfo.splitlines():
            for controller, mounted_path, root in _hierarchies(line):
                path = paths.get(controller)
                if path is not None and controller not in found:
                    found[controller] = Mount(root, _own_folder(root, mounted_path, path))
        return cls(tuple(found.items()))

    def get(self, controller: str) -> Optional[Mount]:
        return dict(self.by_controller).get(controller)

    def own_folders(self, controller: str) -> list[str]:
        """Return our own folder and all above it, nearest first; empty if the controller is not mounted."""
        mount = self.get(controller)
        if mount is None:
            return []
        folders = [mount.own]
        while folders[-1] != mount.root:
            folders.append(os.path.dirname(folders[-1]))
        return folders


def _own_paths(cgroup: str) -> list[tuple[str, str]]:
    """Parse lines `4:memory:/path` and, for v2, `0::/path` to controllers and paths."""
    rows = [line.split(":", 2) for line in cgroup.splitlines() if line.count(":") >= 2]
    return [(controller, path) for _, names, path in rows for controller in names.split(",")]


def _hierarchies(line: str) -> list[tuple[str, str, str]]:
    """Parse a line of mountinfo to tuples of controller, mounted path of the hierarchy, and mount point."""
    before, _, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or len(right) < 3:
        return []
    mounted_path, root = _unescape(left[3]), _unescape(left[4])
    if right[0] == "cgroup2":
        return [(UNIFIED, mounted_path, root)]
    return [(option, mounted_path, root) for option in right[2].split(",")] if right[0] == "cgroup" else []


def _unescape(path: str) -> str:
    """Decode the octal escapes (`\\040` for a space) of a path in mountinfo."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)


def _own_folder(root: str, mounted_path: str, path: str) -> str:
    """Return the folder of the cgroup `path` below the mount point; the mount point if it is not mounted there."""
    relative = os.path.relpath(path, mounted_path)
    folder = os.path.normpath(os.path.join(root, relative))
    return folder if folder == root or folder.startswith(root.rstrip("/") + "/") else root
