"""The contract of a backend: a way to get machines.

A backend prices, starts, polls, stops and lists machines; everything else is the agent's. Methods are synchronous, each
returns soon or raises `Unreachable` by its deadline, and none keeps state that a restart would lose: what exists is
what the provider says exists. A new backend is one module, one row in `registry.py` and one subclass of the
conformance suite.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.pricing import Segment
from crucible.core.compute.resources import Resources
from crucible.core.errors import CrucibleError, NoCapacity, Trouble, Unreachable
from crucible.wire.documents.bootstrap import Bootstrap


class Reach(enum.StrEnum):
    """How an agent on such a machine can talk with the control plane."""

    LOOPBACK = "loopback"
    MOUNT = "mount"
    SHARED_DIR = "shared_dir"
    TUNNEL = "tunnel"
    INTERNET = "internet"


class Slots(enum.StrEnum):
    """Who decides what fits: we count slots, we just try, or the provider queues by its own rules."""

    COUNTED = "counted"
    ELASTIC = "elastic"
    THEIRS = "theirs"


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do, as data."""

    reach: Reach
    slots: Slots
    markets: frozenset[Market] = frozenset({Market.ON_DEMAND})
    bills: bool = True
    shared_machines: bool = False
    """One machine runs several attempts (this computer, an SSH host); otherwise one machine per rank."""
    gpus: bool = False
    multi_node: bool = False
    pause: bool = False
    exec: bool = False
    ports: bool = False
    dedicated: bool = True
    in_place: bool = False
    """A job may run in a folder of the submitting computer, and name interpreters there."""
    agent_python: str = ""
    """The interpreter on this computer that runs its agents; empty where it is not known before a machine is there."""
    simulated: bool = False
    """Nothing real is behind it: a job runs there only if it names the backend."""
    max_runtime: float | None = None
    launch_deadline: float = 30.0
    """Seconds within which `launch` has answered or never will."""
    settle_window: float = 0.0
    """Seconds after that deadline until an unseen machine may be believed absent."""


@dataclass(frozen=True)
class MachineOrder:
    """What `call` needs to know of a machine to launch."""

    machine: str
    deployment: str
    offer: Offer
    ends_at: float | None = None


@dataclass(frozen=True)
class LaunchCall:
    """The exact native call, stored before it is made and replayed byte for byte.

    `token` makes the launch idempotent. The bootstrap nonce is no part of it: it is derived from the
    deployment's key each time the call is performed, so no unused secret rests in a database.
    """

    backend: str
    token: str
    action: str
    parameters: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class MachineRef:
    """A machine as its provider knows it. `machine` is our id, from the tag."""

    backend: str
    machine: str
    native_id: str
    region: str = ""


class Seen(enum.StrEnum):
    """What a provider says about a machine."""

    UP = "up"
    STARTING = "starting"
    HALTED = "halted"
    """The machine exists, its host program does not run: the same launch call starts it again and adopts what runs."""
    GONE = "gone"
    INTERRUPTED = "interrupted"
    """Gone because the provider took it back."""
    UNREACHABLE = "unreachable"
    """The provider cannot say. Nothing follows from it."""


@dataclass(frozen=True)
class Observation:
    ref: MachineRef
    seen: Seen
    detail: str = ""


class LaunchRefused(NoCapacity):
    """The provider refused and certainly made nothing."""

    code = "launch_refused"


class LaunchUnknown(Unreachable):
    """The call may have made a machine: search by token before anything else."""

    code = "launch_unknown"


class NotYetGone(CrucibleError):
    """Termination is under way; ask again."""

    code = "not_yet_gone"


class NotInstalled(Trouble):
    """The backend's extra is missing; the fix is the pip command."""

    code = "not_installed"


@dataclass(frozen=True)
class Metered:
    """The time of one instance at each price, by the provider's meter."""

    ref: MachineRef
    segments: tuple[Segment, ...]


@runtime_checkable
class Meters(Protocol):
    """A backend whose provider shows its meter, which then decides what a machine cost."""

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        """Return one entry for every instance of these machines that the provider still knows.

        They are found by the machines' tags: a machine whose launch was not answered has no `native_id`. An instance
        that is no longer listed has ended.
        """


@runtime_checkable
class Leaves(Protocol):
    """A backend that keeps something running only while a server is connected."""

    def leave(self) -> None:
        """End what is needed only while the server runs. Machines that run or bill stay."""


@runtime_checkable
class Doubles(Protocol):
    """A backend that may hold several instances of one machine, because its provider ignored a token."""

    def end_instance(self, ref: MachineRef) -> None:
        """End exactly this instance, as `terminate` ends the machine with all of them."""


def end_only(backend: Backend, ref: MachineRef) -> None:
    """End the instance that `ref` names, and no other instance of its machine."""
    if isinstance(backend, Doubles):
        backend.end_instance(ref)
    else:
        backend.terminate(ref)


class Backend(Protocol):
    name: str
    capabilities: Capabilities

    def offers(self, need: Resources) -> Sequence[Offer]:
        """Return what could run this now, priced and dated. An offer that cannot is not runnable and says why."""

    def call(self, order: MachineOrder) -> LaunchCall:
        """Return the call that would be made. Pure: no I/O; the same order gives the same call."""

    def launch(self, call: LaunchCall, bootstrap: Bootstrap) -> MachineRef:
        """Make the machine, idempotent by token, and return soon. Raises LaunchRefused or LaunchUnknown.

        The bootstrap is the secret half of a launch: handed over beside the call, and never stored.
        """

    def find(self, token: str) -> MachineRef | None:
        """Return the machine that a launch with this token made; None if the provider lists none."""

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        """Return one observation for each ref. Never raises for a machine that is gone."""

    def terminate(self, ref: MachineRef) -> None:
        """End the machine. Idempotent: already gone is success. Raises NotYetGone while it still runs."""

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        """Return every machine that carries this deployment's tag, for the janitor."""
