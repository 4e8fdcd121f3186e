"""A folder that nothing may touch, round the place where something hostile is unpacked."""

from __future__ import annotations

import os
import stat
from pathlib import Path

Seen = dict[str, tuple[int, int, int, bytes]]


class Canary:
    """`dest` is where to unpack. All round it lie files that an archive could know the names of."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._room = top / "outer" / "room"
        self.dest = self._room / "dest"
        self._room.mkdir(parents=True)
        (top / "sub").mkdir()
        for folder in (top, top / "outer", self._room, top / "sub"):
            (folder / "canary").write_text("alive")
            (folder / "x").write_text("alive")
            (folder / "link").symlink_to("canary")
        (top / "outer" / "private").mkdir(mode=0o700)
        self._before = self._look()

    def is_alive(self) -> bool:
        """Whether all that lies outside `dest` is as it was: names, kinds, modes, sizes, times and content."""
        return self._look() == self._before

    def _look(self) -> Seen:
        """The room's own time is left out: beside `dest` the work is done."""
        found = {}
        for at, folders, files in os.walk(self._top):
            for name in [*folders, *files]:
                path = Path(at) / name
                if path != self.dest and self.dest not in path.parents:
                    found[str(path)] = _seen(path, timed=path != self._room)
        return found


def wrong_inside(dest: Path) -> list[str]:
    """What an unpacked folder holds that it may not: other kinds of files, dangerous modes, links that lead out."""
    top = os.path.realpath(dest)
    return [
        why for at, folders, files in os.walk(dest) for name in [*folders, *files] if (why := _wrong(top, at, name))
    ]


def _wrong(top: str, at: str, name: str) -> str:
    path = os.path.join(at, name)
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        end = os.path.realpath(path)
        return "" if end == top or end.startswith(top + os.sep) else f"{path} leads out"
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return f"{path} is neither file nor folder"
    return f"{path} has the mode {mode:o}" if mode & 0o7022 else ""


def _seen(path: Path, *, timed: bool) -> tuple[int, int, int, bytes]:
    info = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
    return info.st_mode, info.st_size if timed else 0, info.st_mtime_ns if timed else 0, content
