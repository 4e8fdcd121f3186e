"""The control plane as the server uses it: one attribute for each resource, over the services that do the work."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.backends.base import Backend
from crucible.control.objects.store_health import StoreHealth
from crucible.control.resources.backends import Backends
from crucible.control.resources.checkpoints import Checkpoints
from crucible.control.resources.exec_access import ExecAccess
from crucible.control.resources.jobs import Jobs
from crucible.control.resources.labels import Labels
from crucible.control.resources.machines import Machines
from crucible.control.resources.maintenance import Maintenance
from crucible.control.resources.models import Models
from crucible.control.resources.outputs import Outputs
from crucible.control.resources.trainings import Trainings
from crucible.control.runtime.background import BackgroundTasks
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment, Services
from crucible.core.errors import CrucibleError


class ControlPlane:
    """Operations take the identity of the caller first, except those for everyone (backends, catalog).

    What the caller may not see raises NotFound, what they may not do Forbidden.
    """

    def __init__(self, ports: Ports, backends: Mapping[str, Backend], deployment: Deployment) -> None:
        self._services = services = Services(ports, backends, deployment)
        self._background = BackgroundTasks(services)
        self._ready = False
        self._store_health = StoreHealth(ports)
        access = services.access
        self.store = ports.store
        self.agents = services.agents
        self.jobs = Jobs(services)
        self.labels = Labels(services)
        self.outputs = Outputs(services)
        self.checkpoints = Checkpoints(services)
        self.sessions = ExecAccess(services)
        self.bundles = services.bundles
        self.plans = services.plans
        self.backends = Backends(services)
        self.catalog = services.catalog
        self.machines = Machines(ports, services.backends, services.writer, services.janitor, access)
        self.models = Models(deployment.models, ports.clock)
        self.maintenance = Maintenance(services)
        self.people = services.people
        self.trainings = Trainings(ports, self.jobs, self.checkpoints, self.bundles, self.models, self.people)
        self.tokens = services.tokens
        self.login = services.login
        self.secrets = services.vault
        self.hooks = services.hooks

    async def start(self) -> None:
        await self._services.vault.finish_rotation()
        await self.agents.start()
        await self._background.start()
        self._ready = True

    async def stop(self) -> None:
        self._ready = False
        await self._background.stop()

    def ready(self) -> bool:
        """Return whether it has started and does not stop yet."""
        return self._ready

    async def store_error(self) -> CrucibleError | None:
        """Return why the store cannot be used, or None."""
        return await self._store_health.error()
