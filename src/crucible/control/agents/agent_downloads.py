"""The agent file for machines that do not share a disk with the server: served by its hash, and kept in the store.

It is no secret: it is our own program, and a machine refuses any other by the hash in its launch call. A machine that
was launched by another version of the server gets its file from the store.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, select

from crucible.backends.bootstrap import AgentFile
from crucible.control.db import schema as t
from crucible.control.objects import gc_marks
from crucible.control.objects.bundles import StoredFile
from crucible.control.objects.uploads import LANE, PUT_DEADLINE
from crucible.control.runtime.ports import Ports
from crucible.core.errors import NotFound
from crucible.core.lifecycle import MachineState
from crucible.storage import Store
from crucible.storage.layout import agent_key

OPEN_LANE = "agent files"
"""A lane of its own: anyone may ask for a file, and must not delay uploads and launches."""
MARK = "agent file"
SIZE_DEADLINE = 30.0
CHUNK_BYTES = 64 * 1024


class AgentDownloads:
    """`current` is the file of the running version; None if this process launches no machines that need it."""

    def __init__(self, ports: Ports, current: AgentFile | None) -> None:
        self._ports = ports
        self._current = current
        self._numbers = itertools.count(1)

    async def open(self, sha256: str) -> tuple[StoredFile, DiskReader | Store]:
        """Return the file and its reader: the disk for the running version's file, the store for another one.

        Raises NotFound.
        """
        current, store, key = self._current, self._ports.store, agent_key(sha256)
        if current is not None and sha256 == current.sha256 and current.path.exists():
            return StoredFile(key, current.path.stat().st_size, sha256), DiskReader(current.path)
        size = await self._ports.calls.run(OPEN_LANE, lambda: store.size(key), SIZE_DEADLINE)
        if size is None:
            raise NotFound(
                f"There is no agent file {sha256[:12]}….",
                why="It is of another version of Crucible, and no machine that was launched with it is left.",
                fix="Launch the machine again.",
            )
        return StoredFile(key, size, sha256), store

    async def publish(self, sha256: str) -> None:
        """Store the file of the running version if it is missing. Call it before a machine boots from it.

        The row of that machine protects the file from retention. Files of older versions were stored at their launch.
        """
        current, ports, key = self._current, self._ports, agent_key(sha256)
        if current is None or sha256 != current.sha256:
            return
        async with gc_marks.mark_upload(ports, key, MARK, next(self._numbers)) as sent:
            if await ports.calls.run(LANE, lambda: ports.store.size(key), SIZE_DEADLINE) is None:
                await sent.begin()
                await ports.calls.run(LANE, lambda: ports.store.put(key, current.path, sha256=sha256), PUT_DEADLINE)
        await ports.db.write(lambda conn: gc_marks.clear_arriving(conn, key, MARK))


class DiskReader:
    """Reads the agent file from this computer's disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open_range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(start)
            while start < end and (chunk := file.read(min(CHUNK_BYTES, end - start))):
                start += len(chunk)
                yield chunk


def is_booted_from(conn: Connection, sha256: str) -> bool:
    """Return whether a machine that may still boot was launched with this agent file."""
    c = t.machines.c
    alive = c.state != MachineState.GONE.value
    return conn.execute(select(c.id).where(alive, c.call.contains(sha256)).limit(1)).first() is not None
