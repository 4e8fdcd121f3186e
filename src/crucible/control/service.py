"""Control: the one object that the server talks to. It asks the parts; the parts do the work.

`control.at(who)` is the same control plane as somebody in particular may use it (see face.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from crucible.backends.base import Backend
from crucible.control import restored
from crucible.control.changing import Changing, Submitted
from crucible.control.entering import Entering
from crucible.control.models import Models
from crucible.control.parts import Deployment
from crucible.control.people import People, audit
from crucible.control.ports import Ports
from crucible.control.reading import Reading
from crucible.control.rounds import Rounds
from crucible.control.views import View
from crucible.core.models import Order
from crucible.core.people import OWNER, Identity, Permission
from crucible.core.spec import JobSpec
from crucible.storage import Store

if TYPE_CHECKING:
    from crucible.control.people.openid import Entrance

__all__ = ["Control", "Submitted"]


class Control(Reading, Changing, Entering):
    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        super().__init__(ports, backends, deployment)
        self._rounds = Rounds(self._parts)
        self.agents = self._parts.agents
        self.people = People(ports, _entrance(ports, deployment))
        self._models = Models(deployment.models, ports.clock)
        self.vault = self._parts.vault
        self.hooks = self._parts.hooks
        self._ready = False

    async def start(self) -> None:
        await self._parts.vault.settle()
        await self.agents.start()
        await self._rounds.start()
        self._ready = True

    async def stop(self) -> None:
        self._ready = False
        await self._rounds.stop()

    def ready(self) -> bool:
        return self._ready

    async def identify(self, token: str) -> Identity | None:
        return await self.people.identify(token)

    @property
    def store(self) -> Store:
        return self._ports.store

    async def ensure_project(self, name: str) -> None:
        """An administrator's projects are made as they are named; for others they have to be there."""
        await self.people.ensure_project(self._who, name)

    async def models(self) -> list[View]:
        self._need_work()
        return await self._models.listed()

    async def model(self, name: str) -> View:
        self._need_work()
        return await self._models.one(name)

    async def model_spec(self, order: Order, job: Mapping[str, object]) -> JobSpec:
        self._need_work()
        return await self._models.spec(order, job)

    async def share(self, ref: str, *, name: str, seconds: float) -> View:
        """A token that shows this job and nothing else."""
        found = await self._found(ref)
        return await self.people.keys.share(self._who, found.id, found.project, name, seconds)

    async def orphans(self) -> list[View]:
        self._who.need(Permission.OPERATE)
        return await self._parts.fleet.orphans()

    async def terminate_machine(self, ref: str) -> View:
        """End a machine, whatever runs there."""
        await self._operate("machine.terminate", ref)
        return await self._parts.fleet.terminate(ref)

    async def prune(self, *, older_than: float | None, dry_run: bool) -> View:
        await self._operate("store.prune", "dry run" if dry_run else "everything that is old")
        return await self._parts.retention.prune(older_than=older_than, dry_run=dry_run)

    async def refresh_prices(self, provider: str, regions: Sequence[str]) -> View:
        await self._operate("catalog.refresh", provider)
        return await self._parts.prices.refresh(provider, regions)

    async def backup(self, target: str) -> View:
        await self._operate("database.backup", target)
        return await self._parts.backup.make(target)

    async def confirm_restore(self) -> View:
        """After a restore: what was held back is due, and jobs are placed again."""
        await self._operate("database.confirm", "the restored copy")
        done = await self._parts.writer.write(lambda unit: restored.confirm(unit.conn, unit.now))
        for topic in ("effects", "jobs"):
            self._ports.wakeups.wake(topic)
        return done.view

    async def _operate(self, action: str, target: str) -> None:
        """Raise Forbidden unless he may; what he is about to do is written down first."""
        self._who.need(Permission.OPERATE)
        if self._who is not OWNER:
            now = self._ports.clock.now()
            await self._ports.db.write(lambda conn: audit.note(conn, self._who, action, target, now))


def _entrance(ports: Ports, deployment: Deployment) -> Entrance | None:
    """Loaded where a provider is set up, and only there."""
    if deployment.openid is None:
        return None
    from crucible.control.people.openid import Entrance, HttpWeb

    return Entrance(ports, deployment.openid, deployment.web or HttpWeb())
