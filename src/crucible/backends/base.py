"""The contract of a backend, which provides machines.

A backend prices, starts, polls, stops and lists machines; the agent does everything else. Methods are synchronous, and
return soon or raise `Unreachable` by their deadline. A backend keeps no state that a restart would lose: what exists is
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
    """How an agent on such a machine can reach the control plane."""

    LOOPBACK = "loopback"
    MOUNT = "mount"
    SHARED_DIR = "shared_dir"
    TUNNEL = "tunnel"
    INTERNET = "internet"


class Slots(enum.StrEnum):
    """Who decides what fits: we count slots, we launch and see, or the provider queues by its own rules."""

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
    """One machine runs several attempts (this computer, an SSH host); otherwise each rank has its own machine."""
    gpus: bool = False
    multi_node: bool = False
    pause: bool = False
    exec: bool = False
    ports: bool = False
    dedicated: bool = True
    in_place: bool = False
    """A job may run in a folder of the submitting computer, and name interpreters there."""
    agent_python: str = ""
    """The interpreter on this computer that runs its agents; empty if it is known only once a machine is up."""
    simulated: bool = False
    """The machines are not real: a job runs there only if it names the backend."""
    max_runtime: float | None = None
    launch_deadline: float = 30.0
    """Seconds within which `launch` returns or raises."""
    settle_window: float = 0.0
    """Seconds after that deadline until a machine that no list shows may be assumed not to exist."""


@dataclass(frozen=True)
class MachineOrder:
    """The machine to launch, as `call` needs it. `ends_at`: maximum end of its life, in seconds since the epoch."""

    machine: str
    deployment: str
    offer: Offer
    ends_at: float | None = None


@dataclass(frozen=True)
class LaunchCall:
    """The exact native call, stored before it is made and replayed byte for byte.

    `token` makes the launch idempotent. The bootstrap nonce is not part of it: it is derived from the
    deployment's key each time the call is made, so that no unused secret lies in the database.
    """

    backend: str
    token: str
    action: str
    parameters: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class MachineRef:
    """A machine as its provider knows it. `machine` is our id for it, from its tag."""

    backend: str
    machine: str
    native_id: str
    region: str = ""


class Seen(enum.StrEnum):
    """What a provider says about a machine."""

    UP = "up"
    STARTING = "starting"
    HALTED = "halted"
    """The machine exists, but its host does not run: the same launch call restarts it and adopts its runners."""
    GONE = "gone"
    INTERRUPTED = "interrupted"
    """Gone because the provider reclaimed it."""
    UNREACHABLE = "unreachable"
    """The provider did not respond. Nothing may be concluded from it."""


@dataclass(frozen=True)
class Observation:
    """What a provider says about one machine. `detail`: why, in words."""

    ref: MachineRef
    seen: Seen
    detail: str = ""


class LaunchRefused(NoCapacity):
    """The provider refused the launch, and certainly created nothing."""

    code = "launch_refused"


class LaunchUnknown(Unreachable):
    """The call may have created a machine: search for its token before anything else."""

    code = "launch_unknown"


class NotYetGone(CrucibleError):
    """The machine is still ending; call `terminate` again."""

    code = "not_yet_gone"


class NotInstalled(Trouble):
    """A dependency of the backend is missing; the fix is the pip command."""

    code = "not_installed"


@dataclass(frozen=True)
class Metered:
    """The time of one instance at each price, by the provider's meter."""

    ref: MachineRef
    segments: tuple[Segment, ...]


@runtime_checkable
class Meters(Protocol):
    """A backend whose provider shows its own meter, which then decides the cost of a machine."""

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        """Return one entry for every instance of these machines that the provider still knows.

        Searches by the machines' tags, because a machine whose launch got no response has no `native_id`. An instance
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
    """A provider of machines. See the module's docstring."""

    name: str
    capabilities: Capabilities

    def offers(self, need: Resources) -> Sequence[Offer]:
        """Return priced and dated offers for this need. One that cannot run it has a `why_not`."""

    def call(self, order: MachineOrder) -> LaunchCall:
        """Return the launch call for this order. Pure: no I/O, and the same order gives the same call."""

    def launch(self, call: LaunchCall, bootstrap: Bootstrap) -> MachineRef:
        """Create the machine, idempotent by token, and return soon. Raises LaunchRefused or LaunchUnknown.

        The bootstrap is the secret half of a launch: it is passed beside the call, and never stored.
        """

    def find(self, token: str) -> MachineRef | None:
        """Return the machine that a launch with this token created; None if the provider lists none."""

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        """Return one observation for each ref. Never raises for a machine that is gone."""

    def terminate(self, ref: MachineRef) -> None:
        """End the machine. Idempotent: already gone is success. Raises NotYetGone while it still runs."""

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        """Return every machine that carries this deployment's tag, for the janitor."""
