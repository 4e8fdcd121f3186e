"""Files that cannot travel: pipes, sockets and devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from crucible.wire.files.ignore import BUILT_IN, Ignore

MOST_ENTRIES = 20_000
_SHOWN = 3


def special_note(root: Path) -> tuple[str, ...]:
    """A note naming what is no file, folder or link below `root`; of a huge folder only a part is looked at."""
    found = list(_special(root))
    if not found:
        return ()
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    verb = "is" if len(found) == 1 else "are"
    return (f"{', '.join(found[:_SHOWN])}{more} {verb} left out: pipes, sockets and devices cannot be sent.",)


def _special(root: Path) -> Iterator[str]:
    rules = Ignore(BUILT_IN)
    seen = 0
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if not rules.ignores((below / name).as_posix(), is_folder=True)]
        for name in files:
            seen += 1
            if seen > MOST_ENTRIES:
                return
            if _is_special(os.path.join(folder, name)):
                yield (below / name).as_posix()


def _is_special(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))
