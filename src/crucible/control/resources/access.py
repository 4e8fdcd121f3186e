"""Looks up jobs and projects for a caller, and checks what the caller may do with them.

NotFound is raised for what the caller may not see, Forbidden for what they may see but not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from crucible.control.db.port import Db
from crucible.control.jobs import queries
from crucible.control.people import audit, projects
from crucible.control.runtime.ports import Clock
from crucible.core.people.identity import OWNER, Identity, Permission


def access_topic(user: str) -> str:
    """Return the topic of wake-ups for when a token of this user ends, or what they may do changes."""
    return f"access:{user}"


@dataclass(frozen=True)
class Access:
    db: Db
    clock: Clock

    async def find_job(self, who: Identity, ref: str) -> queries.FoundJob:
        """Return the job that an id, the ending of an id, or `last` names. Raises NotFound, Conflict."""
        return await self.db.read(lambda conn: queries.find_job(conn, ref, who))

    async def readable_job(self, who: Identity, ref: str) -> str:
        """Return the id of a job that the caller may see. Raises NotFound, Conflict."""
        return (await self.find_job(who, ref)).id

    async def writable_job(self, who: Identity, ref: str) -> str:
        """Return the id of a job that the caller may change. Raises NotFound, Conflict, Forbidden."""
        job = await self.find_job(who, ref)
        who.require(Permission.WRITE, job.project)
        return job.id

    async def require_project(self, who: Identity, project: str, permission: Permission = Permission.READ) -> None:
        """Raise NotFound unless the caller can see this project, Forbidden if they lack the permission."""
        if not who.may(Permission.READ, project):
            raise projects.not_found(project)
        await self.db.read(lambda conn: projects.require(conn, project))
        who.require(permission, project)

    async def require_operator(self, who: Identity, action: str, target: str) -> None:
        """Raise Forbidden unless the caller operates this deployment; audit what they are about to do."""
        who.require(Permission.OPERATE)
        if who is not OWNER:
            now = self.clock.now()
            await self.db.write(lambda conn: audit.record(conn, who, action, target, now))
