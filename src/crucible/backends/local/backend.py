"""The backend `local`: this computer, on which one detached agent host is shared by all attempts.

A machine is a folder below the state folder (see folder.py). Its host outlives the server, its runners outlive the
host. A restarted server finds living processes again by pid, start time and locks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from crucible.backends.base import (
    Capabilities,
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    NotYetGone,
    Observation,
    Reach,
    Seen,
    Slots,
)
from crucible.backends.local.devices import Probe, SystemProbe, detect
from crucible.backends.local.end_machine import end_machine
from crucible.backends.local.folder import Launched, MachineFolder, Tags, write_doc
from crucible.backends.local.host import log_tail, start_host
from crucible.backends.settings import BackendSettings
from crucible.core.compute.offers import Offer
from crucible.core.compute.resources import Resources
from crucible.core.compute.scheduling import why_never
from crucible.core.errors import BadInput, Conflict
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.files.paths import UnsafePath, safe_name
from crucible.wire.process import Process

ACTION = "start_host"
REGION = "here"
INSTANCE_TYPE = "this computer"
LAUNCH_DEADLINE = 10.0
LOCK_SECONDS = 2.0
"""How long a launch waits for another launch, or a removal, of the same machine."""
HOST_SECONDS = 5.0
"""How long a launch waits for its host to come up."""
IDLE_EXIT_SECONDS = 60
STARTUP_SECONDS = 0.3
ENDING_SECONDS = 5.0
"""How long a process may take from releasing its locks to its end, on a busy computer."""
_POLL_SECONDS = 0.01
_LOOK_SECONDS = 0.1


class CopiedFolder(Conflict):
    """The folder was copied while its machines ran."""

    code = "copied_folder"


class LocalBackend:
    """This computer as a backend. `clock` times terminations: monotonic, and shared by all processes until a reboot."""

    name = "local"

    def __init__(
        self,
        settings: BackendSettings,
        probe: Probe | None = None,
        clock: Callable[[], float] = time.monotonic,
        host_seconds: float = HOST_SECONDS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._host_seconds = host_seconds
        self._machines = settings.home / "machines"
        self._refuse_copy()
        self.devices = detect(probe or SystemProbe(settings.environ.get("CUDA_VISIBLE_DEVICES")))
        self.capabilities = Capabilities(
            reach=Reach.LOOPBACK,
            slots=Slots.COUNTED,
            bills=False,
            shared_machines=True,
            gpus=bool(self.devices.capacity.gpus),
            in_place=True,
            agent_python=settings.python,
            exec=True,
            ports=True,
            launch_deadline=LAUNCH_DEADLINE,
        )

    def offers(self, need: Resources) -> Sequence[Offer]:
        capacity = self.devices.capacity
        return (
            Offer(
                backend=self.name,
                region=REGION,
                instance_type=INSTANCE_TYPE,
                capacity=capacity,
                rate=0,
                startup_seconds=STARTUP_SECONDS,
                dated=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                why_not=why_never(need, capacity, INSTANCE_TYPE),
            ),
        )

    def call(self, order: MachineOrder) -> LaunchCall:
        parameters: dict[str, object] = {
            "machine_dir": f"machines/{order.machine}",
            "deployment": order.deployment,
            "native_id": _native_id(order.machine),
        }
        return LaunchCall(self.name, order.machine, ACTION, parameters)

    def launch(self, call: LaunchCall, bootstrap: Bootstrap) -> MachineRef:
        tags = _tags(call)
        folder = MachineFolder(self._machines / tags.machine)
        try:
            folder.make()
            with folder.hold(LOCK_SECONDS):
                self._launch(folder, tags, bootstrap)
        except (TimeoutError, FileNotFoundError) as error:
            raise LaunchUnknown("Another process is starting or removing this machine.", why=f"{error}.") from error
        except OSError as error:
            raise LaunchRefused("The machine's folder could not be created.", why=f"{error}.") from error
        return self._ref(tags.machine)

    def find(self, token: str) -> MachineRef | None:
        folder = self._existing(token)
        return self._ref(token) if folder and folder.tags else None

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        return [self._observe(ref) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        folder = self._existing(ref.machine)
        if folder is None:
            return
        try:
            with folder.hold():
                end_machine(folder, self._clock())
        except TimeoutError as error:
            raise NotYetGone("Another process is starting or removing this machine.") from error
        except OSError as error:
            if folder.path.is_dir():
                raise NotYetGone("The machine's folder could not be removed.", why=f"{error}.") from error

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        ours = (folder for folder in self._folders() if folder.tags == Tags(deployment, folder.path.name))
        return [self._ref(folder.path.name) for folder in ours]

    # Launching

    def _launch(self, folder: MachineFolder, tags: Tags, bootstrap: Bootstrap) -> None:
        if folder.ending:
            raise LaunchRefused("The machine is being terminated.")
        if folder.host:
            return
        started = self._start(folder, tags, bootstrap)
        try:
            folder.write_launched(Launched(started, time.time()))
            self._await_host(folder, started)
        except OSError as error:
            raise LaunchUnknown("The agent's host does not come up.", why=f"{error}.") from error

    def _start(self, folder: MachineFolder, tags: Tags, bootstrap: Bootstrap) -> Process | None:
        try:
            folder.write_tags(tags)
            write_doc(folder.path / "bootstrap.json", self._bootstrap(folder, tags, bootstrap).to_dict())
            folder.write_launched(Launched(None, time.time()))
            return start_host(self._settings, folder.path, folder.path / "bootstrap.json")
        except TimeoutError as error:
            raise LaunchUnknown("The agent's host did not start in time.", why=f"{error}.") from error
        except OSError as error:
            raise self._refusal(folder, f"{error}.") from error

    def _await_host(self, folder: MachineFolder, started: Process | None) -> None:
        """Wait until a host is up. If two were started, the agent's lock lets only one run; either will do."""
        until = time.monotonic() + self._host_seconds
        while not folder.host:
            if not (started and started.alive) and not folder.host_locked:
                raise self._refusal(folder, log_tail(folder.path))
            if time.monotonic() > until:
                raise TimeoutError(f"no host after {self._host_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def _refusal(self, folder: MachineFolder, why: str) -> LaunchRefused | LaunchUnknown:
        """Return the error for a host that did not start. Removes a new machine; keeps one whose runners may live."""
        what = "The agent could not be started on this computer."
        fix = "`crucible doctor` looks for the cause."
        if folder.unfinished():
            return LaunchUnknown(what, why=why, fix=fix)
        with contextlib.suppress(OSError):  # `owned` still lists what is left, so the janitor removes it
            folder.remove()
        return LaunchRefused(what, why=why, fix=fix)

    def _bootstrap(self, folder: MachineFolder, tags: Tags, bootstrap: Bootstrap) -> Bootstrap:
        return replace(
            bootstrap,
            machine=tags.machine,
            agents_url_file=str(self._settings.agents_url_file),
            work=folder.path,
            envs=self._settings.home / "envs",
            uv=self._settings.uv,
            idle_exit_seconds=IDLE_EXIT_SECONDS,
            native_id=_native_id(tags.machine),
        )

    # Observing

    def _observe(self, ref: MachineRef) -> Observation:
        folder = self._existing(ref.machine)
        if folder is None or folder.tags is None:
            return Observation(ref, Seen.GONE, "there is no such machine")
        if folder.host:
            return Observation(ref, Seen.UP)
        if folder.starting(LAUNCH_DEADLINE):
            return Observation(ref, Seen.STARTING)
        left = folder.unfinished()
        if left:
            return Observation(ref, Seen.HALTED, f"no host runs; unfinished attempts: {left}")
        return Observation(ref, Seen.GONE, "its host has ended and left nothing")

    def _refuse_copy(self) -> None:
        """Raise CopiedFolder if the machines here run, but in another folder: a server here would end their jobs."""
        until = time.monotonic() + ENDING_SECONDS
        while (living := self._living_elsewhere()) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)  # a process that ends just now releases its lock first
        if living:
            pids = ", ".join(str(process.pid) for process in sorted(living, key=lambda process: process.pid))
            raise CopiedFolder(
                f"{self._settings.home} is a copy of a state folder whose machines run.",
                why=f"A server here would take over their jobs, and end them. Processes: {pids}.",
                fix="Use the original, or set CRUCIBLE_HOME to another folder. To use the copy, end those first.",
            )

    def _living_elsewhere(self) -> frozenset[Process]:
        return frozenset(process for folder in self._folders() for process in folder.living_elsewhere())

    # Folders and names

    def _folders(self) -> Iterator[MachineFolder]:
        if self._machines.is_dir():
            yield from (MachineFolder(path) for path in sorted(self._machines.iterdir()))

    def _existing(self, machine: str) -> MachineFolder | None:
        if not _is_name(machine):
            return None
        folder = MachineFolder(self._machines / machine)
        return folder if folder.path.is_dir() else None

    def _ref(self, machine: str) -> MachineRef:
        return MachineRef(self.name, machine, _native_id(machine), REGION)


def _native_id(machine: str) -> str:
    """Return the machine's native id. It is the same for each of its hosts, so that a restarted one can claim again."""
    return f"local:{machine}"


def _is_name(machine: str) -> bool:
    try:
        return "/" not in safe_name(machine) and not machine.startswith(".")
    except UnsafePath:
        return False


def _tags(call: LaunchCall) -> Tags:
    deployment = call.parameters.get("deployment")
    if call.action != ACTION or not _is_name(call.token) or not isinstance(deployment, str):
        raise BadInput(f"{call.action!r} of {call.token!r} is not a launch call of the backend 'local'.")
    return Tags(deployment, call.token)
