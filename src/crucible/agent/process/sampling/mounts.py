"""Where the cgroup hierarchies are mounted, and this process's cgroup in each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional

UNIFIED = ""
"""The name of the one hierarchy of cgroup v2; those of v1 are named by controller."""


@dataclass(frozen=True)
class Mount:
    """One hierarchy: its folder, and our own folder in it (the same if ours is not visible)."""

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
            for controller, shown, root in _hierarchies(line):
                path = paths.get(controller)
                if path is not None and controller not in found:
                    found[controller] = Mount(root, _inside(root, shown, path))
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
    """Lines `4:memory:/path` and, for v2, `0::/path`."""
    rows = [line.split(":", 2) for line in cgroup.splitlines() if line.count(":") >= 2]
    return [(controller, path) for _, names, path in rows for controller in names.split(",")]


def _hierarchies(line: str) -> list[tuple[str, str, str]]:
    """(controller, the part of the hierarchy that is shown, where) of a line of mountinfo."""
    before, _, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or len(right) < 3:
        return []
    shown, root = left[3], left[4].encode().decode("unicode_escape") if "\\" in left[4] else left[4]
    if right[0] == "cgroup2":
        return [(UNIFIED, shown, root)]
    return [(option, shown, root) for option in right[2].split(",")] if right[0] == "cgroup" else []


def _inside(root: str, shown: str, path: str) -> str:
    relative = os.path.relpath(path, shown)
    inside = os.path.normpath(os.path.join(root, relative))
    return inside if inside == root or inside.startswith(root.rstrip("/") + "/") else root
