"""The checkpoints of a job: list, fetch and request them."""

from __future__ import annotations

from crucible.control.jobs import queries
from crucible.control.objects import checkpoints
from crucible.control.objects.bundles import StoredFile
from crucible.control.runtime.services import Services
from crucible.core.people.identity import Identity
from crucible.core.views.jobs import CheckpointPage, CheckpointView, JobView


class Checkpoints:
    def __init__(self, services: Services) -> None:
        self._ports = services.ports
        self._resumer = services.resumer
        self._access = services.access

    async def list_checkpoints(self, who: Identity, ref: str) -> CheckpointPage:
        """Return the checkpoints of a job, newest first, including those that were removed."""
        job = await self._access.readable_job(who, ref)
        return await self._ports.db.read(lambda conn: queries.list_checkpoints(conn, job))

    async def file(self, who: Identity, ref: str, checkpoint: str) -> tuple[CheckpointView, StoredFile]:
        """Return a checkpoint by its id, short id or name, `latest` or `best`; a folder is stored as a tar archive."""
        job = await self._access.readable_job(who, ref)
        view = checkpoints.find_checkpoint((await self.list_checkpoints(who, job)).items, checkpoint, job)
        return view, checkpoints.stored_file(job, view)

    async def request(self, who: Identity, ref: str) -> JobView:
        """Ask the running program to save a checkpoint now. Raises Conflict if the job is not running."""
        job, now = await self._access.writable_job(who, ref), self._ports.clock.now()
        await self._resumer.request_checkpoint(job)
        return await self._ports.db.read(lambda conn: queries.read_job(conn, job, now))
