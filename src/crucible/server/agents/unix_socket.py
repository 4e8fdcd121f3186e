"""The Unix socket at which agents on this computer find the server: no other user can take its place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crucible.core.errors import RefusedByPolicy, Trouble
from crucible.wire.files.identity import leads_to
from crucible.wire.files.private import why_not_private

NAME = "agents.sock"
BACKLOG = 128


@contextlib.contextmanager
def bind_agents_socket(home: Path) -> Iterator[socket.socket]:
    """Bind the socket of the state folder, whose lock the caller holds. A dead server's socket is replaced."""
    with _bind_near(home) as bound:
        path = Path(bound.getsockname())
        made = path.stat()
        try:
            yield bound
        finally:
            with contextlib.suppress(OSError):  # a read-only disk; the next server replaces it
                if leads_to(path, made):  # of a lost state folder, the path may lead to the successor's socket
                    path.unlink()
                    if path.parent != home.absolute():
                        path.parent.rmdir()


def _bind_near(home: Path) -> socket.socket:
    if not why_not_private(home):
        with contextlib.suppress(OSError):  # the path is too long (about 100 bytes), or the disk holds no sockets
            return _bind(home.absolute() / NAME)
    folder = short_folder(home, Path(tempfile.gettempdir()))
    try:
        return _bind(folder / NAME)
    except OSError as error:
        raise Trouble(
            f"The server cannot make its socket for agents in {folder}.",
            why=f"{error}.",
            fix="Set CRUCIBLE_HOME to a folder with a shorter path, or TMPDIR.",
        ) from error


def short_folder(home: Path, parent: Path, uid: int | None = None) -> Path:
    """Return a private folder in `parent` for this state folder alone. `uid`: who owns it (default: this user)."""
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    folder = parent / f"crucible-{os.geteuid()}-{digest}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Trouble(f"The folder {folder} cannot be made.", why=f"{error}.", fix="Set TMPDIR.") from error
    why = f"{folder} is a link" if folder.is_symlink() else why_not_private(folder, uid)
    if why:
        raise RefusedByPolicy(
            "The folder for the server's socket could be another user's.",
            why=f"{why}. Who owns it would get the secrets of agents.",
            fix="Remove it, or set CRUCIBLE_HOME to a folder with a shorter path.",
        )
    return folder


def _bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound
