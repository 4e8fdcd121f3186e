"""Notices that the state of a running server is gone: its folder, the lock in it, or the database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from crucible.control.db.sqlite.open_files import OpenFiles
from crucible.core.errors import Trouble
from crucible.server.folder_lock import FolderLock

WATCH_SECONDS = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class StateWatch:
    """`database` is None where the database is not in the state folder."""

    lock: FolderLock
    database: OpenFiles | None

    async def until_lost(self) -> Trouble:
        """Wait until the folder, its lock or its database is removed or replaced; log and return what happened."""
        while True:
            try:
                self.lock.check()
                if self.database is not None:
                    self.database.check()
            except Trouble as loss:
                log.error("ending: the state is lost", what=loss.what, why=loss.why, fix=loss.fix)
                return loss
            await asyncio.sleep(WATCH_SECONDS)
