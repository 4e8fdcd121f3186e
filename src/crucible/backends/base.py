"""The contract of a backend, which provides machines.

A backend prices, starts, polls, stops and lists machines; the agent does everything else. Methods are synchronous, and
return soon or raise `Unreachable` by their deadline. A backend keeps no state that a restart would lose: what exists is
what the provider says exists. A new backend is one module, one row in `registry.py` and one subclass of the
conformance suite. docs/backends.md shows how, and lists the deadlines.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from crucible.core.channels import Reach as Reach  # part of the contract
from crucible.core.compute.offers import Market, Need, Nodes, Offer, OnDemand, ProviderQueue
from crucible.core.compute.pricing import Segment
from crucible.core.compute.resources import Allocation
from crucible.core.errors import CrucibleError, NoCapacity, Trouble, Unreachable
from crucible.wire.documents.bootstrap import Bootstrap


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do, as data. The control plane acts on every field.

    They are the class's, or set in its constructor if they depend on the settings.
    """

    reach: Reach
    capacity: Nodes | OnDemand | ProviderQueue
    markets: frozenset[Market] = frozenset({Market.ON_DEMAND})
    bills: bool = True
    gang_in_one_call: bool = False
    """One launch call makes all machines of a gang; otherwise there is one call for each."""
    in_place: bool = False
    """A job may run in a folder of the submitting computer, and name interpreters there."""
    agent_python: str = ""
    """The interpreter on this computer that runs its agents; empty if it is known only once a machine is up."""
    simulated: bool = False
    """The machines are not real: a job runs there only if it names the backend."""
    operators_only: bool = False
    """Its computers are used by others too: only operators may run jobs there, unless its setting `projects` says
    which projects may."""
    max_runtime: float | None = None
    launch_deadline: float = 30.0
    """Seconds within which `launch` returns or raises; at most 30, because nobody waits longer."""
    settle_window: float = 0.0
    """Seconds after that deadline until a machine that no list shows may be assumed not to exist."""

    @property
    def shares_machines(self) -> bool:
        """Whether several attempts run on one machine."""
        return isinstance(self.capacity, Nodes) and self.capacity.shared


@dataclass(frozen=True)
class MachineOrder:
    """The machine to launch. If `image`, `disk_bytes` or `ports` is not set, the backend's default applies."""

    machine: str
    deployment: str
    offer: Offer
    ends_at: float | None = None
    """When the machine ends at the latest, in seconds since the epoch. None if that is unknown, because the provider
    may let the machine wait, or if the machine ends only when asked to."""
    ends_after: float | None = None
    """The same in seconds from the machine's start. None: the machine ends only when asked to."""
    label: str = ""
    """The job's name, for the provider's lists."""
    image: str = ""
    disk_bytes: int | None = None
    ports: tuple[int, ...] = ()
    allocation: Allocation | None = None
    """What the attempt uses of the machine; None if several attempts share it."""
    rank: int = 0
    """The number of this machine in its gang."""
    ranks: int = 1
    """The number of machines of the gang."""
    others: tuple[str, ...] = ()
    """The ids of the other machines that the same call makes (`gang_in_one_call`), in the order of their ranks."""


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
    """A machine as its provider knows it. `machine` is our id for it, from its tag.

    `native_id` is stored, and passed back as `launch` or `find` returned it; `region` is the offer's. Together they
    find the machine again, even after the settings have changed. Only `Meters` is asked for machines without an id.
    """

    backend: str
    machine: str
    native_id: str
    region: str = ""


class Seen(enum.StrEnum):
    """What a provider says about a machine."""

    QUEUED = "queued"
    """The machine waits in the provider's own queue, and has not started."""
    STARTING = "starting"
    UP = "up"
    HALTED = "halted"
    """The machine exists, but its host does not run: the same launch call restarts it and adopts its runners."""
    GONE = "gone"
    INTERRUPTED = "interrupted"
    """Gone because the provider reclaimed it."""
    UNREACHABLE = "unreachable"
    """The provider did not respond. Nothing may be concluded from it."""


@dataclass(frozen=True)
class Observation:
    """What a provider says about one machine.

    `detail`: why, in our words. `started_at`: when the machine started, by the provider's clock; None if it does not
    say.
    """

    ref: MachineRef
    seen: Seen
    detail: str = ""
    started_at: float | None = None


@dataclass(frozen=True)
class Finding:
    """One result of a backend's `check`. `fix`: what to do if it is not `ok`.

    `warning`: it can be used although `why`, so `why` and `fix` are shown all the same.
    """

    what: str
    ok: bool = True
    why: str = ""
    fix: str = ""
    warning: bool = False


class LaunchRefused(NoCapacity):
    """The provider refused the launch, and certainly created nothing."""

    code = "launch_refused"


class LaunchUnknown(Unreachable):
    """The call may have created a machine: search for its token before anything else."""

    code = "launch_unknown"


class PartlyUnreachable(Unreachable):
    """Some of the provider did not answer. `found`: the machines of the rest. About all others nothing is known."""

    code = "partly_unreachable"

    def __init__(self, what: str, found: Sequence[MachineRef], *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.found = tuple(found)


class NotYetGone(CrucibleError):
    """The machine is still ending; call `terminate` again."""

    code = "not_yet_gone"


class AlreadyStarted(CrucibleError):
    """The machine no longer waits in its provider's queue."""

    code = "already_started"


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
class Withdraws(Protocol):
    """A backend whose machines wait in the provider's own queue (`ProviderQueue`)."""

    def withdraw(self, ref: MachineRef) -> None:
        """Cancel the machine if it still waits in the queue. Raises AlreadyStarted if it has started, and leaves it.

        A machine that no longer exists is success.
        """


@runtime_checkable
class Leaves(Protocol):
    """A backend that keeps something running only while a server is connected."""

    def leave(self) -> None:
        """End what is needed only while the server runs. Machines that run or bill stay."""


@runtime_checkable
class Disconnects(Protocol):
    """A backend that leaves something behind on its computers: caches, an agent file, a tunnel."""

    def clean_up(self) -> Sequence[Finding]:
        """Remove what is left there, once no machine is. Returns what was removed, and what could not be, with its fix.

        Called when the backend is disconnected, maybe more than once.
        """


@runtime_checkable
class Tunnels(Leaves, Protocol):
    """A backend that builds a tunnel from each computer with machines to this server (`Reach.TUNNEL`).

    It ends them in `leave`, and builds them again when machines are polled. The bootstrap that its `launch` passes on
    names the tunnel's other end.
    """


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

    def offers(self, need: Need) -> Sequence[Offer]:
        """Return priced and dated offers for this need: few, the best first. One that cannot run it has a `why_not`.

        Called in the background, again and again for each need of waiting jobs. `choose_offers` of `offers.py` selects.
        """

    def call(self, order: MachineOrder) -> LaunchCall:
        """Return the launch call for this order. Pure: no I/O, and the same order gives the same call."""

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        """Create the machines, idempotent by token, and return soon.

        Raises LaunchRefused if nothing was created, LaunchUnknown if something may have been, and Unreachable if the
        call was certainly not received. After the last two it is called again, unless `find` finds the machines.
        Returns one machine for each bootstrap, in any order: one, or those of a gang (`gang_in_one_call`). The
        `machine` of each, from its tag, says which it is. The bootstraps are the secret half of a launch: they are
        passed beside the call, and never stored.
        """

    def find(self, token: str) -> Sequence[MachineRef]:
        """Return the machines that a launch with this token created and that are not gone, as the provider lists them.

        Raises Unreachable.
        """

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        """Return one observation for each ref, in order. Raises nothing for a machine that is gone or unknown.

        If the provider does not answer, each machine is UNREACHABLE.
        """

    def terminate(self, ref: MachineRef) -> None:
        """End the machine. Idempotent: already gone is success.

        Raises NotYetGone while it still runs, and Unreachable; both are called again.
        """

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        """Return every machine that carries this deployment's tag and is not gone, for the janitor.

        In all regions and on all pages: what is left out is never ended. Raises Unreachable if some may be missing;
        PartlyUnreachable, with those that were found, if the provider has parts that answer on their own, such as hosts
        or regions.
        """

    def check(self) -> Sequence[Finding]:
        """Return what was checked: credentials, permissions, quota, reach, prices. Each failure has its fix.

        Changes nothing, and raises Unreachable if the provider does not answer.
        """
