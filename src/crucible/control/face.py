"""The face: the control plane as somebody in particular may use it.

A job that is not his to see is not there for him; what he may see and not change is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeVar

from crucible.backends.base import Backend
from crucible.control import crowds, queries
from crucible.control.parts import Deployment, Parts
from crucible.control.ports import Ports
from crucible.control.views import View
from crucible.core.people import OWNER, Identity, Permission

F = TypeVar("F", bound="Face")


class Face:
    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        self._ports = ports
        self._parts = Parts(ports, backends, deployment)
        self._who = OWNER

    def at(self: F, who: Identity) -> F:
        """The same, as `who` may use it; until told otherwise it serves the owner."""
        seen = copy(self)
        seen._who = who
        return seen

    async def find_job(self, ref: str) -> str:
        return (await self._found(ref)).id

    async def _found(self, ref: str) -> queries.Found:
        return await self._ports.db.read(lambda conn: queries.find_job(conn, ref, self._who))

    async def _writable(self, ref: str) -> str:
        """The job, if it is his to change."""
        found = await self._found(ref)
        self._who.need(Permission.WRITE, found.project)
        return found.id

    def _need_work(self) -> None:
        """Raise Forbidden for somebody who may submit nowhere."""
        if self._who.projects(Permission.WRITE) == frozenset():
            raise self._who.nowhere()

    async def _view(self, job: str) -> View:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: queries.one_job(conn, job, now))

    async def _views(self, jobs: Sequence[str]) -> list[View]:
        now = self._ports.clock.now()
        return await self._ports.db.read(lambda conn: crowds.job_views(conn, jobs, now))
