"""Control: what the server talks to, one attribute for each resource, over the services that do the work."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.backends.base import Backend
from crucible.control.resources.backends import Backends
from crucible.control.resources.checkpoints import Checkpoints
from crucible.control.resources.exec_access import ExecAccess
from crucible.control.resources.jobs import Jobs
from crucible.control.resources.labels import Labels
from crucible.control.resources.machines import Machines
from crucible.control.resources.maintenance import Maintenance
from crucible.control.resources.models import Models
from crucible.control.resources.outputs import Outputs
from crucible.control.runtime.background import Rounds
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment, Parts


class ControlPlane:
    """An operation takes the identity of the caller, unless it is for everyone (backends, catalog).

    What the caller may not see raises NotFound, what they may not do Forbidden.
    """

    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        self._parts = parts = Parts(ports, backends, deployment)
        self._rounds = Rounds(parts)
        self._ready = False
        access = parts.access
        self.store = ports.store
        self.agents = parts.agents
        self.jobs = Jobs(parts)
        self.labels = Labels(parts)
        self.outputs = Outputs(parts)
        self.checkpoints = Checkpoints(parts)
        self.sessions = ExecAccess(parts)
        self.bundles = parts.bundles
        self.plans = parts.plans
        self.backends = Backends(parts.backends)
        self.catalog = parts.catalog
        self.machines = Machines(ports, parts.backends, parts.writer, parts.janitor, access)
        self.models = Models(deployment.models, ports.clock)
        self.maintenance = Maintenance(parts)
        self.people = parts.people
        self.tokens = parts.tokens
        self.login = parts.login
        self.secrets = parts.vault
        self.hooks = parts.hooks

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
