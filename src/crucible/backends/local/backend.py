"""The backend `local`: this computer, on which one detached agent host is shared by all attempts.

A machine is a folder below the state folder (wire/machines). Its host outlives the server, its runners outlive the
host. A restarted server finds living processes again by pid, start time and locks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from crucible.backends.base import (
    Capabilities,
    Finding,
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    NotYetGone,
    Observation,
    Reach,
    Seen,
)
from crucible.backends.context import BackendContext
from crucible.backends.local.devices import Probe, SystemProbe, detect
from crucible.backends.local.settings import LocalSettings
from crucible.backends.node_identity import own_node_id
from crucible.core.compute.offers import Need, Node, Nodes, Offer
from crucible.core.compute.resources import format_memory
from crucible.core.errors import BadInput, Conflict
from crucible.core.scheduling.slots import why_too_small
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.machines.ending import StillThere, end_machine
from crucible.wire.machines.folder import MachineFolder, Tags, is_machine_name, list_machines
from crucible.wire.machines.launching import HostCommand, MayRun, NotLaunched, host_environment, launch_machine
from crucible.wire.process import Process

ACTION = "start_host"
REGION = "here"
INSTANCE_TYPE = "this computer"
LAUNCH_DEADLINE = 10.0
HOST_SECONDS = 5.0
"""How long a launch waits for its host to come up."""
IDLE_EXIT_SECONDS = 60
STARTUP_SECONDS = 0.3
ENDING_SECONDS = 5.0
"""How long a process may take from releasing its locks to its end, on a busy computer."""
_POLL_SECONDS = 0.1


class CopiedFolder(Conflict):
    """The folder was copied while its machines ran."""

    code = "copied_folder"


class LocalBackend:
    """This computer as a backend. `clock` times terminations: monotonic, and shared by all processes until a reboot."""

    name = "local"

    def __init__(
        self,
        context: BackendContext[LocalSettings],
        probe: Probe | None = None,
        clock: Callable[[], float] = time.monotonic,
        host_seconds: float = HOST_SECONDS,
    ) -> None:
        self._context = context
        self._clock = clock
        self._host_seconds = host_seconds
        self._machines = context.home / "machines"
        self._refuse_copy()
        self.devices = detect(probe or SystemProbe(context.environ.get("CUDA_VISIBLE_DEVICES")))
        self._node = Node(own_node_id(), INSTANCE_TYPE)
        self.capabilities = Capabilities(
            reach=Reach.SAME_COMPUTER,
            capacity=Nodes(),
            bills=False,
            in_place=True,
            agent_python=context.python,
            launch_deadline=LAUNCH_DEADLINE,
        )

    def offers(self, need: Need) -> Sequence[Offer]:
        capacity = self.devices.capacity
        return (
            Offer(
                backend=self.name,
                region=REGION,
                instance_type=INSTANCE_TYPE,
                capacity=capacity,
                rate=0,
                startup_seconds=STARTUP_SECONDS,
                dated=self._context.timestamp(),
                why_not=why_too_small(need.resources, capacity, INSTANCE_TYPE),
                node=self._node,
            ),
        )

    def call(self, order: MachineOrder) -> LaunchCall:
        parameters: dict[str, object] = {
            "machine_dir": f"machines/{order.machine}",
            "deployment": order.deployment,
            "native_id": _native_id(order.machine),
        }
        return LaunchCall(self.name, order.machine, ACTION, parameters)

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        tags, fix = _parse_call(call), "`crucible doctor` looks for the cause."
        (bootstrap,) = bootstraps
        folder = MachineFolder(self._machines / tags.machine)
        context = self._context
        host = HostCommand(context.python, context.agent_file.path, host_environment(context.environ))
        try:
            launch_machine(folder, tags, self._bootstrap(folder, tags, bootstrap).to_dict(), host, self._host_seconds)
        except MayRun as error:
            raise LaunchUnknown(error.what, why=error.why, fix=fix) from error
        except NotLaunched as error:
            raise LaunchRefused(error.what, why=error.why, fix=fix) from error
        return [self._ref(tags.machine)]

    def find(self, token: str) -> Sequence[MachineRef]:
        folder = self._existing(token)
        return [self._ref(token)] if folder and folder.tags else []

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        return [self._observe(ref) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        folder = self._existing(ref.machine)
        if folder is None:
            return
        try:
            with folder.hold():
                end_machine(folder, self._clock())
        except StillThere as error:
            raise NotYetGone(str(error), pids=error.pids) from error
        except TimeoutError as error:
            raise NotYetGone("Another process is starting or removing this machine.") from error
        except OSError as error:
            if folder.path.is_dir():
                raise NotYetGone("The machine's folder could not be removed.", why=f"{error}.") from error

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        ours = (folder for folder in self._folders() if folder.tags == Tags(deployment, folder.path.name))
        return [self._ref(folder.path.name) for folder in ours]

    def check(self) -> Sequence[Finding]:
        capacity, fix = self.devices.capacity, "Make it writable, or set CRUCIBLE_HOME to another folder."
        gpus = f", {len(capacity.gpus)} x {capacity.gpu_name or 'GPU'}" if capacity.gpus else ""
        found = [Finding(f"{capacity.cpus:g} CPUs, {format_memory(capacity.memory_bytes)}{gpus}")]
        writable = os.access(self._context.home, os.W_OK | os.X_OK)
        found.append(Finding(f"the state folder {self._context.home} is writable", writable, fix=fix))
        return found

    def _bootstrap(self, folder: MachineFolder, tags: Tags, bootstrap: Bootstrap) -> Bootstrap:
        return replace(
            bootstrap,
            machine=tags.machine,
            agents_url_file=str(self._context.agents_url_file),
            work=folder.path,
            envs=self._context.home / "envs",
            uv=self._context.uv,
            idle_exit_seconds=IDLE_EXIT_SECONDS,
            native_id=_native_id(tags.machine),
        )

    # Observing

    def _observe(self, ref: MachineRef) -> Observation:
        folder = self._existing(ref.machine)
        if folder is None:
            return Observation(ref, Seen.GONE, "there is no such machine")
        state, why = folder.observe(LAUNCH_DEADLINE)
        return Observation(ref, Seen(state), why)

    def _refuse_copy(self) -> None:
        """Raise CopiedFolder if the machines here run, but in another folder: a server here would end their jobs."""
        until = time.monotonic() + ENDING_SECONDS
        while (living := self._living_elsewhere()) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)  # a process that ends just now releases its lock first
        if living:
            pids = ", ".join(str(process.pid) for process in sorted(living, key=lambda process: process.pid))
            raise CopiedFolder(
                f"{self._context.home} is a copy of a state folder whose machines run.",
                why=f"A server here would take over their jobs, and end them. Processes: {pids}.",
                fix="Use the original, or set CRUCIBLE_HOME to another folder. To use the copy, end those first.",
            )

    def _living_elsewhere(self) -> frozenset[Process]:
        return frozenset(process for folder in self._folders() for process in folder.living_elsewhere())

    # Folders and names

    def _folders(self) -> Iterator[MachineFolder]:
        return list_machines(self._machines)

    def _existing(self, machine: str) -> MachineFolder | None:
        if not is_machine_name(machine):
            return None
        folder = MachineFolder(self._machines / machine)
        return folder if folder.path.is_dir() else None

    def _ref(self, machine: str) -> MachineRef:
        return MachineRef(self.name, machine, _native_id(machine), REGION)


def _native_id(machine: str) -> str:
    """Return the machine's native id. It is the same for each of its hosts, so that a restarted one can claim again."""
    return f"local:{machine}"


def _parse_call(call: LaunchCall) -> Tags:
    """Return the tags of the machine that a launch call of this backend makes. Raises BadInput for another call."""
    deployment = call.parameters.get("deployment")
    if call.action != ACTION or not is_machine_name(call.token) or not isinstance(deployment, str):
        raise BadInput(f"{call.action!r} of {call.token!r} is not a launch call of the backend 'local'.")
    return Tags(deployment, call.token)
