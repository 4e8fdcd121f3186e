"""The hosts of the settings, with what was discovered about each, and which of them are the same computer.

Discovery asks all hosts at once, and is remembered for a while. What was found last is also kept in a file, so that
the node of a host that is down is known to a server that has just started.
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
class Known:
    """What is known of a host. `error`: why the last discovery failed. `nodes`: who keeps files in the same home."""

    facts: HostFacts | None = None
    nodes: tuple[str, ...] = ()
    error: CrucibleError | None = None
    at: float = float("-inf")


@dataclass(frozen=True)
class Host:
    """A host, and how it relates to the others.

    `same_as`: an earlier host of the settings that is this computer too. `is_clone`: another computer that runs has
    the same machine id. `is_here`: it is the server's own computer.
    """

    host: SshHost
    connection: HostConnection = field(repr=False)
    known: Known
    node: Node
    same_as: str = ""
    is_clone: bool = False
    is_here: bool = False

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def facts(self) -> HostFacts | None:
        return self.known.facts


class Hosts:
    """`file` keeps what was found last. `own` reads the facts of this computer."""

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
        self._known = self._load()

    def folder(self, node: str) -> HostFolder:
        return HostFolder(node, self._deployment)

    def discover(self, *, again: bool = False) -> list[Host]:
        """Return all hosts, after asking those whose facts are old, or all of them `again`."""
        due = [each for each in self._connections if again or self._is_due(each)]
        for connection in due if again else ():
            connection.retry_now()
        found = on_each(self._ask, due, DISCOVERY_SECONDS)
        for connection, result in zip(due, found, strict=True):
            before = self._known.get(connection.host.target, Known())
            late = HostUnreachable(f"The host {connection.host.name} did not answer in time.")
            self._known[connection.host.target] = result or replace(before, error=late, at=self._clock())
        if any(result is not None and result.error is None for result in found):
            self._save()
        return self.list()

    def list(self) -> list[Host]:
        """Return all hosts with what is known about them, without asking."""
        known = [self._known.get(each.host.target, Known()) for each in self._connections]
        own = self._own()
        identities = _without_old_boots(own, known)
        present = [position for position, each in enumerate(identities) if each is not None]
        clones = {
            present[position - 1]
            for position in find_clones([own, *(each for each in identities if each is not None)])
            if position
        }
        here = node_id(own)
        hosts = []
        for position, (connection, each, identity) in enumerate(zip(self._connections, known, identities, strict=True)):
            host, clone = connection.host, position in clones
            found = node_id(identity, is_clone=clone) if identity else f"unknown-{host.target}"
            busy = tuple(gpu.index for gpu in each.facts.gpus if gpu.used_by) if each.facts else ()
            node = Node(host.node or found, host.name, host.max_attempts, busy)
            hosts.append(
                Host(
                    host,
                    connection,
                    each,
                    node,
                    is_clone=clone and not host.node,
                    is_here=node.id == here,
                )
            )
        used: dict[str, str] = {}
        for one in sorted(hosts, key=lambda one: one.known.error is not None):  # the name that answers, if one does
            used.setdefault(one.node.id, one.host.target)
        first = [used[one.node.id] for one in hosts]
        return [
            replace(one, same_as="" if target == one.host.target else target)
            for one, target in zip(hosts, first, strict=True)
        ]

    def find(self, node: str) -> Host | None:
        """Return the host that is this node, preferably one that answers; None if no host is known to be."""
        found = [host for host in self.list() if host.node.id == node]
        return next((host for host in found if host.known.error is None), found[0] if found else None)

    def forget(self) -> None:
        self._known = {}
        self._file.unlink(missing_ok=True)

    def _is_due(self, connection: HostConnection) -> bool:
        known = self._known.get(connection.host.target, Known())
        return self._clock() - known.at >= FRESH_SECONDS

    def _ask(self, connection: HostConnection) -> Known:
        before = self._known.get(connection.host.target, Known())
        try:
            answer = connection.ask(
                "facts", seconds=FACTS_SECONDS, host_keys=list(HOST_KEYS), deployment_folder=self._deployment
            )
            facts = HostFacts.model_validate(answer["facts"])
        except ValidationError as error:
            why = f"{error.error_count()} of its facts are invalid."
            unclear = HostFailed(f"The host {connection.host.name} describes itself in an unknown way.", why=why)
            return replace(before, error=unclear, at=self._clock())
        except CrucibleError as error:
            return replace(before, error=error, at=self._clock())
        nodes = answer.get("nodes")
        names = tuple(str(name) for name in nodes) if isinstance(nodes, list) else ()
        return Known(_with_host_key(facts, connection), names, None, self._clock())

    # The file of what was found last

    def _load(self) -> dict[str, Known]:
        try:
            docs = json.loads(self._file.read_bytes())
            return {target: Known(HostFacts.model_validate(doc)) for target, doc in docs.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _save(self) -> None:
        docs = {target: known.facts.model_dump() for target, known in self._known.items() if known.facts}
        with suppress(OSError):  # a full disk: it is found again
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


def _without_old_boots(own: NodeFacts, known: Sequence[Known]) -> list[NodeFacts | None]:
    """Return the identity of each host, with the boot id that its computer has now.

    A host that is reached by two names, of which one has not been asked since it was restarted, is no copy of itself.
    """
    boots = {(own.machine_id, own.host_key): own.boot_id}
    for each in sorted((each for each in known if each.facts), key=lambda each: -each.at):
        assert each.facts is not None
        boots.setdefault((each.facts.machine_id, each.facts.host_key), each.facts.boot_id)
    return [
        replace(each.facts.identity, boot_id=boots[each.facts.machine_id, each.facts.host_key]) if each.facts else None
        for each in known
    ]
