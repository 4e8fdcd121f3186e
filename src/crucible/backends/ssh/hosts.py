"""The hosts of the settings, with what was discovered about each, and which of them are the same computer.

Discovery asks all hosts at once. Its results are used for a while, and the facts are also kept in a file, so that a
server that has just started knows the node of a host that is down.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from crucible.backends.node_identity import HOST_KEYS, NodeFacts, find_clones, node_id, read_own_facts
from crucible.backends.ssh.connection import HostConnection, HostFailed, HostFolder
from crucible.backends.ssh.openssh import HostUnreachable
from crucible.backends.ssh.settings import SshHost
from crucible.core.compute.offers import Node
from crucible.core.compute.resources import Capacity
from crucible.core.errors import CrucibleError

T = TypeVar("T")
U = TypeVar("U")

FRESH_SECONDS = 30.0
DISCOVERY_SECONDS = 15.0
"""Deadline for the facts of all hosts; those that are late keep what was known."""
FACTS_SECONDS = 12.0
_THREADS = 16


class GpuFacts(BaseModel):
    model_config = ConfigDict(frozen=True)

    index: int
    name: str
    memory_bytes: int = 0
    used_by: str = ""


class HostFacts(BaseModel):
    """What a host says about itself; agent/machines/facts.py describes it."""

    model_config = ConfigDict(frozen=True)

    hostname: str
    user: str
    system: str
    python: str
    machine_id: str
    boot_id: str
    host_key: str
    cpus: float
    memory_bytes: int
    gpus: tuple[GpuFacts, ...] = ()
    free_bytes: int = 0
    home_filesystem: str = ""
    tmp_noexec: bool = False
    ends_with_session: bool = False

    @property
    def identity(self) -> NodeFacts:
        return NodeFacts(self.machine_id, self.boot_id, self.host_key)

    @property
    def capacity(self) -> Capacity:
        return Capacity(
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
            gpus=tuple(gpu.index for gpu in self.gpus),
            gpu_memory_bytes=min((gpu.memory_bytes for gpu in self.gpus), default=0),
            gpu_name=", ".join(sorted({gpu.name for gpu in self.gpus})),
        )


@dataclass(frozen=True)
class Discovery:
    """The last result of asking a host. A failure keeps the facts and nodes of the result before it."""

    facts: HostFacts | None = None
    nodes: tuple[str, ...] = ()
    """The nodes that keep files in the same home."""
    error: CrucibleError | None = None
    at: float = float("-inf")


@dataclass(frozen=True)
class Host:
    """A host, and how it relates to the others.

    `same_as`: an earlier host of the settings that is this computer too. `is_clone`: another computer that runs has
    the same machine id. `is_here`: it is the server's own computer.
    """

    settings: SshHost
    connection: HostConnection = field(repr=False)
    discovery: Discovery
    node: Node
    same_as: str = ""
    is_clone: bool = False
    is_here: bool = False

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def facts(self) -> HostFacts | None:
        return self.discovery.facts

    @property
    def error(self) -> CrucibleError | None:
        """Why the last discovery failed, or None."""
        return self.discovery.error


class Hosts:
    """The table of hosts. `file` keeps the facts for the next server. `own` reads the identity of this computer."""

    def __init__(
        self,
        connections: Sequence[HostConnection],
        deployment: str,
        file: Path,
        own: Callable[[], NodeFacts] = read_own_facts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = connections
        self._deployment = deployment
        self._file = file
        self._own = own
        self._clock = clock
        self._discoveries = self._load()

    def folder(self, node: str) -> HostFolder:
        return HostFolder(node, self._deployment)

    def discover(self, *, again: bool = False) -> list[Host]:
        """Return all hosts, after asking those whose facts are old, or all of them `again`."""
        due = [each for each in self._connections if again or self._is_due(each)]
        for connection in due if again else ():
            connection.retry_now()
        found = on_each(self._ask, due, DISCOVERY_SECONDS)
        for connection, result in zip(due, found, strict=True):
            self._discoveries[connection.host.target] = result or self._failed(
                connection,
                HostUnreachable(
                    f"The host {connection.host.name} did not answer in time.",
                    fix=connection.ssh.try_fix(connection.host),
                ),
            )
        if any(result is not None and result.error is None for result in found):
            self._save()
        return self.list()

    def list(self) -> list[Host]:
        """Return all hosts with what is known about them, without asking."""
        own, last = self._own(), [self._last(each) for each in self._connections]
        identities = _without_old_boots(own, last)
        clones, here = _find_clones(own, identities), node_id(own)
        hosts = []
        for position, (connection, discovery) in enumerate(zip(self._connections, last, strict=True)):
            settings, identity, is_clone = connection.host, identities[position], position in clones
            found = node_id(identity, is_clone=is_clone) if identity else f"unknown-{settings.target}"
            busy_gpus = tuple(gpu.index for gpu in discovery.facts.gpus if gpu.used_by) if discovery.facts else ()
            node = Node(settings.node or found, settings.name, settings.max_attempts, busy_gpus)
            is_clone = is_clone and not settings.node
            hosts.append(Host(settings, connection, discovery, node, is_clone=is_clone, is_here=node.id == here))
        return _mark_duplicates(hosts)

    def find(self, node: str) -> Host | None:
        """Return the host that is this node, preferably one that answers; None if no host is known to be."""
        found = [host for host in self.list() if host.node.id == node]
        return next((host for host in found if host.error is None), found[0] if found else None)

    def forget(self) -> None:
        self._discoveries = {}
        self._file.unlink(missing_ok=True)

    def _is_due(self, connection: HostConnection) -> bool:
        return self._clock() - self._last(connection).at >= FRESH_SECONDS

    def _last(self, connection: HostConnection) -> Discovery:
        return self._discoveries.get(connection.host.target, Discovery())

    def _failed(self, connection: HostConnection, error: CrucibleError) -> Discovery:
        return replace(self._last(connection), error=error, at=self._clock())

    def _ask(self, connection: HostConnection) -> Discovery:
        try:
            answer = connection.ask(
                "facts", seconds=FACTS_SECONDS, host_keys=list(HOST_KEYS), deployment_folder=self._deployment
            )
            facts = HostFacts.model_validate(answer["facts"])
        except ValidationError as error:
            what = f"The facts that the host {connection.host.name} reports are invalid."
            fields = ", ".join(str(each["loc"][0]) for each in error.errors(include_input=False))
            fix = "Report this as a defect of Crucible, with the system and the Python of the host."
            return self._failed(connection, HostFailed(what, why=f"Invalid: {fields}.", fix=fix))
        except CrucibleError as error:
            return self._failed(connection, error)
        nodes = answer.get("nodes")
        names = tuple(str(name) for name in nodes) if isinstance(nodes, list) else ()
        return Discovery(_with_host_key(facts, connection), names, None, self._clock())

    # The file of facts

    def _load(self) -> dict[str, Discovery]:
        try:
            docs = json.loads(self._file.read_bytes())
            return {target: Discovery(HostFacts.model_validate(doc)) for target, doc in docs.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _save(self) -> None:
        docs = {target: last.facts.model_dump() for target, last in self._discoveries.items() if last.facts}
        with suppress(OSError):  # a full disk: the next server asks again
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = self._file.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(docs), encoding="utf-8")
            part.replace(self._file)


def on_each(work: Callable[[T], U], items: Sequence[T], seconds: float) -> list[U | None]:
    """Return the result of `work` for each item, made at once; None for those that are not ready in time."""
    if not items:
        return []
    pool = ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="ssh")
    futures: list[Future[U]] = [pool.submit(work, item) for item in items]
    wait(futures, seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() if future.done() and not future.cancelled() else None for future in futures]


def _with_host_key(facts: HostFacts, connection: HostConnection) -> HostFacts:
    """Return the facts with the pinned host key if the host does not show its own."""
    if facts.host_key:
        return facts
    return facts.model_copy(update={"host_key": connection.ssh.pinned_key(connection.host)})


def _find_clones(own: NodeFacts, identities: Sequence[NodeFacts | None]) -> frozenset[int]:
    """Return the positions of the hosts that are clones of another host or of this computer."""
    positions = [position for position, each in enumerate(identities) if each is not None]
    clones = find_clones([own, *(each for each in identities if each is not None)])
    return frozenset(positions[clone - 1] for clone in clones)  # this computer comes first, so it is never the clone


def _mark_duplicates(hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts with `same_as` set: of several names of one node, a name that answers is used."""
    used: dict[str, str] = {}
    for host in sorted(hosts, key=lambda host: host.error is not None):
        used.setdefault(host.node.id, host.settings.target)
    targets = [used[host.node.id] for host in hosts]
    return [
        replace(host, same_as="" if target == host.settings.target else target)
        for host, target in zip(hosts, targets, strict=True)
    ]


def _without_old_boots(own: NodeFacts, discoveries: Sequence[Discovery]) -> list[NodeFacts | None]:
    """Return the identity of each host, with the boot id that its computer has now.

    One computer may have two names, of which one was last asked before a restart: the old boot id does not make it a
    clone of itself.
    """
    boots = {(own.machine_id, own.host_key): own.boot_id}
    for each in sorted((each for each in discoveries if each.facts), key=lambda each: -each.at):
        assert each.facts is not None
        boots.setdefault((each.facts.machine_id, each.facts.host_key), each.facts.boot_id)
    return [
        replace(each.facts.identity, boot_id=boots[each.facts.machine_id, each.facts.host_key]) if each.facts else None
        for each in discoveries
    ]
