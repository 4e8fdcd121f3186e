"""The files of an open database, and whether they are still where they were opened.

SQLite keeps writing to a file that was removed or replaced, and reports no error; what it commits there is lost.
"""

from __future__ import annotations

import os

from crucible.control.db.port import DatabaseLost
from crucible.wire.files.identity import leads_to

SUFFIXES = ("", "-wal")


class OpenFiles:
    """Make it right after the database was opened. A file that SQLite makes only later is not looked after."""

    def __init__(self, path: str) -> None:
        names = (f"{path}{suffix}" for suffix in SUFFIXES)
        self._opened = {name: os.stat(name) for name in names if os.path.exists(name)}

    def check(self) -> None:
        """Raise DatabaseLost unless each path still leads to the file that was opened."""
        for name, opened in self._opened.items():
            if not leads_to(name, opened):
                raise DatabaseLost(
                    f"The database file {name} was removed or replaced under the running server.",
                    why="Nothing that is written now would be kept.",
                    fix="Start the server again; if the state folder is gone, restore a backup first.",
                )
