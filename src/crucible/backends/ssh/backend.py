"""The backend `ssh`: Linux hosts with one detached agent host each, shared by all attempts there.

A machine is a folder on its host (wire/machines), as the machines of `local` are folders here; what is done to it is
done there, by the agent's file (agent/machines). Agents reach the server through a tunnel that lasts as long as there
are machines. A machine's native id names its node, so that it is found again under another name of the host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

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
    PartlyUnreachable,
    Reach,
    Seen,
)
from crucible.backends.context import BackendContext
from crucible.backends.ssh.checks import check_hosts, clean_hosts
from crucible.backends.ssh.connection import HostConnection, HostFailed
from crucible.backends.ssh.hosts import Host, Hosts, on_each
from crucible.backends.ssh.openssh import HostUnreachable, OpenSsh, socket_folder
from crucible.backends.ssh.remote import AgentContent
from crucible.backends.ssh.settings import SshSettings
from crucible.core.compute.offers import Need, Nodes, Offer
from crucible.core.compute.resources import Capacity
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.ids import short
from crucible.core.scheduling.slots import why_too_small
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.http.client import BaseUrl
from crucible.wire.machines.folder import is_machine_name

ACTION = "start_host"
LAUNCH_DEADLINE = 28.0
"""A little less than control waits for a call."""
HOST_SECONDS = 5.0
"""How long a launch waits on the host for the agent's host to come up."""
STARTING_SECONDS = 10.0
"""How long after its launch a host may still come up."""
START_SECONDS = 15.0
LAUNCH_HOLD_SECONDS = 10.0
POLL_SECONDS = 15.0
LIST_SECONDS = 25.0
LEAVE_SECONDS = 1.2
IDLE_EXIT_SECONDS = 60
STARTUP_SECONDS = 2.0
_EMPTY = Capacity(cpus=0, memory_bytes=0)


@dataclass(frozen=True)
class NativeId:
    """A machine as its host knows it: the host's node, and the name of the folder."""

    node: str
    machine: str

    @classmethod
    def parse(cls, text: str) -> NativeId | None:
        """Return the parts of a native id or a token; None if it is neither."""
        scheme, _, rest = text.partition(":")
        node, _, machine = rest.partition(":")
        if scheme != "ssh" or not node or not is_machine_name(machine):
            return None
        return cls(node, machine)

    def __str__(self) -> str:
        return f"ssh:{self.node}:{self.machine}"


class SshBackend:
    """`hosts` makes the table of hosts from their connections, the deployment's name and a file."""

    name = "ssh"

    def __init__(
        self,
        context: BackendContext[SshSettings],
        hosts: Callable[[Sequence[HostConnection], str, Path], Hosts] = Hosts,
    ) -> None:
        self._context = context
        self._own = context.settings
        folder = context.home / "ssh"
        sockets = socket_folder(context.home, context.environ)
        self._ssh = OpenSsh(folder / "known_hosts", sockets, self._own.config, context.environ)
        agent = cache(lambda: AgentContent.read(context.agent_file.path))
        connections = [HostConnection(host, self._ssh, agent) for host in self._own.hosts]
        self._hosts = hosts(connections, context.deployment or "default", folder / "hosts.json")
        self.capabilities = Capabilities(
            reach=Reach.TUNNEL,
            capacity=Nodes(),
            bills=False,
            operators_only=True,
            launch_deadline=LAUNCH_DEADLINE,
            settle_window=2.0,
        )

    # Offers and calls

    def offers(self, need: Need) -> Sequence[Offer]:
        hosts = self._hosts.discover()
        return tuple(self._offer(host, need) for host in hosts)

    def _offer(self, host: Host, need: Need) -> Offer:
        capacity = host.facts.capacity if host.facts else _EMPTY
        return Offer(
            backend=self.name,
            region=host.name,
            instance_type=host.name,
            capacity=capacity,
            rate=0,
            startup_seconds=STARTUP_SECONDS,
            dated=self._context.timestamp(),
            why_not=_why_not(host, need, capacity),
            node=host.node,
        )

    def call(self, order: MachineOrder) -> LaunchCall:
        node = order.offer.node
        if node is None:
            raise BadInput("An offer of the backend 'ssh' names its node.")
        native = NativeId(node.id, order.machine)
        parameters: dict[str, object] = {
            "host": order.offer.region,
            "node": node.id,
            "machine": order.machine,
            "deployment": order.deployment,
        }
        return LaunchCall(self.name, str(native), ACTION, parameters)

    # Machines

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        native, deployment = _launched(call)
        (bootstrap,) = bootstraps
        try:
            host = self._reach(native.node)
            self._launch(host, native, deployment, bootstrap)
        except HostUnreachable as error:
            failure = LaunchUnknown if error.sent else LaunchRefused
            raise failure(error.what, why=error.why, fix=error.fix) from error
        except HostFailed as error:
            failure = LaunchUnknown if error.kind == "may_run" else LaunchRefused
            raise failure(error.what, why=error.why, fix=error.fix) from error
        return [self._ref(native, host.name)]

    def _launch(self, host: Host, native: NativeId, deployment: str, bootstrap: Bootstrap) -> None:
        connection, folder = host.connection, self._hosts.folder(native.node)
        complete = replace(bootstrap, native_id=str(native), idle_exit_seconds=IDLE_EXIT_SECONDS)
        with connection.hold(LAUNCH_HOLD_SECONDS):
            try:
                self._keep_tunnel(host, native.node)
                connection.ask(
                    "start",
                    folder,
                    keep=True,
                    seconds=START_SECONDS,
                    machine=native.machine,
                    deployment=deployment,
                    bootstrap=complete.to_dict(),
                    launch_seconds=HOST_SECONDS,
                    tmp_noexec=bool(host.facts and host.facts.tmp_noexec),
                )
            except HostFailed as error:
                if error.kind != "may_run":
                    self._close_if_empty(host, native.node)
                raise

    def find(self, token: str) -> Sequence[MachineRef]:
        native = NativeId.parse(token)
        if native is None:
            return []
        host = self._reach(native.node)
        return [ref for ref, _ in self._list(host, native.node) if ref.machine == native.machine]

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        natives = [NativeId.parse(ref.native_id) for ref in refs]
        machines: dict[str, list[str]] = defaultdict(list)
        for native in natives:
            if native is not None:
                machines[native.node].append(native.machine)
        answers = on_each(lambda item: self._observe_node(*item), list(machines.items()), POLL_SECONDS)
        found = dict(zip(machines, answers, strict=True))
        return [
            _observation(ref, native, found[native.node] if native else None)
            for ref, native in zip(refs, natives, strict=True)
        ]

    def terminate(self, ref: MachineRef) -> None:
        native = NativeId.parse(ref.native_id)
        if native is None:
            return
        try:
            answer = self._end(native)
        except HostUnreachable as error:
            lost = f"If the host is lost for good: crucible machines terminate {short(ref.machine)} --lost"
            raise HostUnreachable(error.what, why=error.why, fix=f"{error.fix} {lost}".lstrip()) from error
        if not answer["gone"]:
            raise NotYetGone(str(answer["why"]))

    def _end(self, native: NativeId) -> Mapping[str, object]:
        host = self._reach(native.node)
        with host.connection.hold():
            folder, limit = self._hosts.folder(native.node), self._own.cache_bytes
            answer = host.connection.ask("end", folder, machine=native.machine, cache_bytes=limit)
            if not answer["left"]:
                host.connection.close()
        return answer

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        """Return the machines on every host. Raises PartlyUnreachable if one does not answer, for it may have some."""
        hosts = self._distinct(self._hosts.discover())
        answers = on_each(self._list_or_none, hosts, LIST_SECONDS)
        found = [ref for each in answers for ref, owner in each or () if owner == deployment]
        silent = [host.name for host, each in zip(hosts, answers, strict=True) if each is None]
        if silent:
            raise PartlyUnreachable(
                "Not every host answers.",
                found,
                why=f"Nothing is known about machines on {', '.join(silent)}.",
                fix="`crucible backends check ssh` shows why.",
            )
        return found

    def leave(self) -> None:
        """End connections and tunnels. Machines stay, and jobs there go on."""
        on_each(lambda host: host.connection.close_now(), self._hosts.list(), LEAVE_SECONDS)

    def check(self) -> Sequence[Finding]:
        return check_hosts(self._hosts, self._ssh, self._agents_socket(), self._own.cache_bytes)

    def clean_up(self) -> Sequence[Finding]:
        """Remove everything that this deployment keeps on its hosts, and here about them."""
        return clean_hosts(self._hosts, self._ssh)

    # Hosts

    def _observe_node(self, node: str, machines: Sequence[str]) -> Mapping[str, object] | CrucibleError:
        """Return the host's answer about these machines, or the error. Keeps its tunnel up while machines are left."""
        try:
            host = self._reach(node)
            with host.connection.hold():
                folder = self._hosts.folder(node)
                answer = host.connection.ask("observe", folder, machines=machines, launch_seconds=STARTING_SECONDS)
                if not answer["left"]:
                    host.connection.close()
                elif host.connection.open() or not answer["tunnel"]:
                    host.connection.make_tunnel(folder, self._agents_socket())
            return answer
        except CrucibleError as error:
            return error

    def _keep_tunnel(self, host: Host, node: str) -> None:
        """Open the connection, and a tunnel if none works."""
        fresh, folder = host.connection.open(), self._hosts.folder(node)
        if fresh or not host.connection.ask("observe", folder, machines=[])["tunnel"]:
            host.connection.make_tunnel(folder, self._agents_socket())

    def _close_if_empty(self, host: Host, node: str) -> None:
        """After a launch that failed, leave nothing on a host that has no other machine."""
        try:
            folder, limit = self._hosts.folder(node), self._own.cache_bytes
            if not host.connection.ask("prune", folder, cache_bytes=limit)["left"]:
                host.connection.close()
        except CrucibleError:
            return  # the next launch or the next check does it

    def _list_or_none(self, host: Host) -> list[tuple[MachineRef, str]] | None:
        """Return what `_list` does; None if the host cannot be asked."""
        try:
            return self._list(host, host.node.id)
        except CrucibleError:
            return None

    def _list(self, host: Host, node: str) -> list[tuple[MachineRef, str]]:
        """Return the machines that a host has of this deployment's servers, each with the deployment of its tag."""
        machines = host.connection.ask("list", self._hosts.folder(node))["machines"]
        pairs = machines if isinstance(machines, list) else []
        return [(self._ref(NativeId(node, str(name)), host.name), str(owner)) for name, owner in pairs]

    def _reach(self, node: str) -> Host:
        """Return the host that is this node. Raises HostUnreachable if it is in the settings no longer, or unknown."""
        host = self._hosts.find(node)
        if host is None:
            self._hosts.discover()
            host = self._hosts.find(node)
        if host is None:
            raise HostUnreachable(
                "The host of this machine is not among those of the settings, or has not answered yet.",
                why=f"Its node is {node}.",
                fix="If it was removed, add it again until its jobs have ended: crucible backends connect ssh --host …",
            )
        return host

    @staticmethod
    def _distinct(hosts: Sequence[Host]) -> list[Host]:
        """Return one host for each node; of unknown ones, all."""
        return [host for host in hosts if not host.same_as]

    def _agents_socket(self) -> Path:
        """Return the socket at which the server expects agents. A server that moved has written another one."""
        file = self._context.agents_socket_file
        try:
            text = file.read_text(encoding="utf-8").strip() if file else ""
        except OSError:
            text = ""
        path = BaseUrl.parse(text).socket if text else ""
        if not path:
            raise HostFailed("The server's socket for agents is not known.", why=f"{file} does not name it.")
        return Path(path)

    def _ref(self, native: NativeId, region: str) -> MachineRef:
        return MachineRef(self.name, native.machine, str(native), region)


def _why_not(host: Host, need: Need, capacity: Capacity) -> str:
    """Return why a job with this need cannot start on the host now; empty if it can."""
    if host.error is not None:
        return str(host.error)
    if host.facts is None:
        return f"{host.name} has not answered yet"
    if host.same_as:
        return f"is the same computer as {host.same_as}, which is listed too"
    return why_too_small(need.resources, capacity, host.name)


def _observation(
    ref: MachineRef, native: NativeId | None, answer: Mapping[str, object] | CrucibleError | None
) -> Observation:
    if native is None:
        return Observation(ref, Seen.GONE, "there is no such machine")
    if answer is None:
        return Observation(ref, Seen.UNREACHABLE, f"{ref.region} did not answer in time")
    if isinstance(answer, CrucibleError):
        return Observation(ref, Seen.UNREACHABLE, str(answer))
    machines = answer["machines"]
    state, why = machines[native.machine] if isinstance(machines, dict) else ("unreachable", "")
    return Observation(ref, Seen(state), str(why))


def _launched(call: LaunchCall) -> tuple[NativeId, str]:
    """Return what a launch call of this backend makes, and for which deployment. Raises BadInput for another's."""
    native, deployment = NativeId.parse(call.token), call.parameters.get("deployment")
    if call.action != ACTION or native is None or not isinstance(deployment, str):
        raise BadInput(f"{call.action!r} of {call.token!r} is not a launch call of the backend 'ssh'.")
    return native, deployment
