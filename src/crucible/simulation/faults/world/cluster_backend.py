"""The backend of the simulated cluster, with the faults of its provider's interface."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.backends.base import (
    AlreadyStarted,
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
from crucible.core.compute.offers import Availability, Need, Offer, ProviderQueue
from crucible.core.compute.resources import Capacity, GiB
from crucible.core.errors import Unreachable
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.cluster import Cluster, Submission
from crucible.simulation.faults.world.ports import START
from crucible.wire.documents.bootstrap import Bootstrap

LIST_LAG = 15.0
SIZE = Capacity(cpus=2, memory_bytes=4 * GiB)
RATE = 200_000
STARTUP_SECONDS = 30.0


class ClusterBackend:
    """A backend without state: what exists is what the cluster lists.

    Whether it bills, whether it says when a machine has started, and how many may wait, differs between seeds.
    """

    name = "cluster"

    def __init__(self, cluster: Cluster, faults: FaultRates, rng: RandomStream) -> None:
        self._cluster = cluster
        self._faults = faults
        self._rng = rng
        self._says_start = rng.chance(0.6)
        self.limit = rng.integer(1, 2)
        self.capabilities = Capabilities(
            reach=Reach.INTERNET,
            capacity=ProviderQueue(self.limit),
            bills=rng.chance(0.5),
            gang_in_one_call=True,
            launch_deadline=30.0,
            settle_window=LIST_LAG,
        )

    def offers(self, need: Need) -> Sequence[Offer]:
        self._fail_sometimes()
        rate = RATE if self.capabilities.bills else 0
        return [
            Offer(
                self.name,
                "partition",
                "batch",
                SIZE,
                rate,
                availability=Availability.QUEUED,
                startup_seconds=STARTUP_SECONDS,
            )
        ]

    def call(self, order: MachineOrder) -> LaunchCall:
        parameters: dict[str, object] = {"deployment": order.deployment, "ends_after": order.ends_after}
        return LaunchCall(self.name, order.machine, "submit", parameters)

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        self._fail_sometimes()
        if self._faults.strikes("create.failed"):
            raise LaunchUnknown("The cluster failed, and made nothing.")
        if self._faults.strikes("create.refused") and not self._cluster.find(call.token):
            raise LaunchRefused("The partition is closed.")
        ends_after = float(str(call.parameters["ends_after"]))
        part = len(bootstraps) > 1 and self._faults.strikes("create.partial")
        wanted = bootstraps[:-1] if part else bootstraps
        made = self._cluster.submit(call.token, str(call.parameters["deployment"]), wanted, ends_after)
        if self._faults.strikes("create.lost"):
            raise LaunchUnknown("The answer was lost.")
        return [self._ref(one) for one in made]

    def find(self, token: str) -> Sequence[MachineRef]:
        then = self._virtual_time(self._draw_lag())
        return [self._ref(one) for one in self._cluster.find(token) if _is_listed(one, then)]

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        try:
            then = self._virtual_time(self._draw_lag())
        except Unreachable as error:
            return [Observation(ref, Seen.UNREACHABLE, str(error)) for ref in refs]
        return [self._observe(ref, self._cluster.submissions.get(ref.native_id), then) for ref in refs]

    def withdraw(self, ref: MachineRef) -> None:
        self._fail_sometimes()
        if not self._cluster.withdraw(ref.native_id):
            raise AlreadyStarted("It has started.")
        if self._faults.strikes("terminate.failed"):
            raise Unreachable("The answer was lost.")

    def terminate(self, ref: MachineRef) -> None:
        self._fail_sometimes()
        if self._faults.strikes("terminate.failed"):
            raise Unreachable("The cluster did not end it.")
        found = self._cluster.end_on_request(ref.native_id)
        if found is not None and found.alive:
            raise NotYetGone("It is ending.")

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        then = self._virtual_time(self._draw_lag())
        listed = self._cluster.submissions.values()
        return [self._ref(one) for one in listed if one.deployment == deployment and _is_listed(one, then)]

    def check(self) -> Sequence[Finding]:
        return []

    def _observe(self, ref: MachineRef, found: Submission | None, then: float) -> Observation:
        if found is None or found.submitted_at > then:
            return Observation(ref, Seen.GONE, "no list shows it")
        started = found.started_at if found.started_at is not None and found.started_at <= then else None
        started_at = None if started is None or not self._says_start else START + started
        if found.ended_at is not None and found.ended_at <= then:
            return Observation(ref, Seen.GONE, found.cause, started_at)
        if started is None:
            return Observation(ref, Seen.QUEUED, found.reason)
        return Observation(ref, Seen.UP, "", started_at)

    def _virtual_time(self, lag: float) -> float:
        return self._cluster.now() - lag

    def _fail_sometimes(self) -> None:
        if self._faults.storming("cluster") or self._faults.strikes("call.failed"):
            raise Unreachable("The scheduler of the cluster does not answer.")

    def _draw_lag(self) -> float:
        """Return how many seconds behind the list of this call is. Raises Unreachable if the call fails."""
        self._fail_sometimes()
        return 0.0 if self._faults.calm else self._rng.uniform(0.0, LIST_LAG)

    def _ref(self, one: Submission) -> MachineRef:
        return MachineRef(self.name, one.machine, one.id, "partition")


def _is_listed(one: Submission, then: float) -> bool:
    """Return whether a list of that time shows it as waiting or running."""
    return one.submitted_at <= then and (one.ended_at is None or one.ended_at > then)
