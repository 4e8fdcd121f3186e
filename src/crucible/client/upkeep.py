"""What keeps a server's state in order, over the API."""

from __future__ import annotations

from crucible.client.answers import read
from crucible.client.serverviews import BackupView, ConfirmedView, PruneView
from crucible.client.transport import Transport

SECONDS = 600.0


class Upkeep:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def prune(self, *, older_than: float | None = None, dry_run: bool = False) -> PruneView:
        """Remove what retention allows, older than so many seconds (the server's own time unless given)."""
        body = {"older_than_seconds": older_than, "dry_run": dry_run}
        response = self._transport.request("POST", "/api/v1/prune", body=body, repeat=True, seconds=SECONDS)
        return read(PruneView, response)

    def backup(self, path: str) -> BackupView:
        """Copy the database to a new file; `path` is absolute, on the server's disk."""
        body = {"path": path}
        response = self._transport.request("POST", "/api/v1/db/backup", body=body, seconds=SECONDS)
        return read(BackupView, response)

    def confirm_restore(self) -> ConfirmedView:
        return read(ConfirmedView, self._transport.request("POST", "/api/v1/db/confirm", repeat=True))
