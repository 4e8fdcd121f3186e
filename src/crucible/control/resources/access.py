"""Which job or project a caller means, and what the caller may do with it.

One that the caller may not see is reported as missing; one that they may see but not change is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from crucible.control.db.port import Db
from crucible.control.jobs import queries
from crucible.control.people import audit, projects
from crucible.control.runtime.ports import Clock
from crucible.core.people.identity import OWNER, Identity, Permission


@dataclass(frozen=True)
class Access:
    db: Db
    clock: Clock

    async def find_job(self, who: Identity, ref: str) -> queries.FoundJob:
        """Return the job that an id, an ending of one, or `last` names. Raises NotFound, Conflict."""
        return await self.db.read(lambda conn: queries.find_job(conn, ref, who))

    async def readable_job(self, who: Identity, ref: str) -> str:
        """Return the id of the job, if the caller may see it."""
        return (await self.find_job(who, ref)).id

    async def writable_job(self, who: Identity, ref: str) -> str:
        """Return the id of the job, if the caller may change it."""
        found = await self.find_job(who, ref)
        who.require(Permission.WRITE, found.project)
        return found.id

    async def require_project(self, who: Identity, project: str, permission: Permission = Permission.READ) -> None:
        """Raise NotFound unless there is this project and the caller may see it, Forbidden without the permission."""
        if not who.may(Permission.READ, project):
            raise projects.not_found(project)
        await self.db.read(lambda conn: projects.require(conn, project))
        who.require(permission, project)

    async def require_operator(self, who: Identity, action: str, target: str) -> None:
        """Raise Forbidden unless the caller operates this deployment; note what they are about to do."""
        who.require(Permission.OPERATE)
        if who is not OWNER:
            now = self.clock.now()
            await self.db.write(lambda conn: audit.record(conn, who, action, target, now))
