"""The backend of the simulated cloud, with the faults of its provider's API."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.backends.base import (
    Capabilities,
    Finding,
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineOrder,
    MachineRef,
    Metered,
    NotYetGone,
    Observation,
    Reach,
    Seen,
)
from crucible.core.compute.offers import Billing, Market, Need, Offer, OnDemand
from crucible.core.compute.pricing import Segment
from crucible.core.compute.resources import Capacity, GiB
from crucible.core.errors import Unreachable
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.cloud import MINIMUM, Cloud, Instance
from crucible.wire.documents.bootstrap import Bootstrap

LIST_LAG = 15.0
STARTUP_SECONDS = 60.0
SIZE = Capacity(cpus=2, memory_bytes=4 * GiB)


class ElasticBackend:
    """A backend without state: what exists is what the cloud lists."""

    name = "cloud"
    capabilities = Capabilities(
        reach=Reach.INTERNET,
        capacity=OnDemand(),
        markets=frozenset({Market.ON_DEMAND, Market.SPOT}),
        bills=True,
        simulated=True,
        launch_deadline=30.0,
        settle_window=LIST_LAG,
    )

    def __init__(self, cloud: Cloud, faults: FaultRates, rng: RandomStream) -> None:
        self._cloud = cloud
        self._faults = faults
        self._rng = rng

    def offers(self, need: Need) -> Sequence[Offer]:
        self._fail_sometimes()
        return [
            Offer(
                self.name,
                zone,
                "sim.small",
                SIZE,
                rate,
                billing=Billing(minimum=MINIMUM),
                market=market,
                startup_seconds=STARTUP_SECONDS,
                why_not="sold out" if (zone, market) in self._cloud.sold_out else "",
            )
            for (zone, market), rate in self._cloud.prices.items()
        ]

    def call(self, order: MachineOrder) -> LaunchCall:
        parameters: dict[str, object] = {
            "deployment": order.deployment,
            "zone": order.offer.region,
            "market": order.offer.market.value,
            "ends_at": order.ends_at,
        }
        return LaunchCall(self.name, order.machine, "create", parameters)

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        self._fail_sometimes()
        if self._faults.strikes("create.failed"):
            raise LaunchUnknown("The cloud failed, and made nothing.")
        zone, market = str(call.parameters["zone"]), Market(str(call.parameters["market"]))
        sold_out = (zone, market) in self._cloud.sold_out or self._faults.strikes("create.refused")
        if sold_out and self._cloud.find_by_token(call.token) is None:
            raise LaunchRefused("There is no capacity.")
        ends_at = call.parameters["ends_at"]
        instance = self._cloud.create(
            call.token,
            str(call.parameters["deployment"]),
            zone,
            market,
            bootstraps[0].nonce,
            float(ends_at) if isinstance(ends_at, int | float) else None,
        )
        if self._faults.strikes("create.lost"):
            raise LaunchUnknown("The answer was lost.")
        return [self._ref(instance)]

    def find(self, token: str) -> Sequence[MachineRef]:
        lag = self._draw_lag()
        found = [i for i in self._cloud.list_instances(lag) if i.machine == token and self._cloud.seen_alive(i, lag)]
        return [self._ref(instance) for instance in found[:1]]

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        try:
            lag = self._draw_lag()
        except Unreachable as error:
            return [Observation(ref, Seen.UNREACHABLE, str(error)) for ref in refs]
        listed = self._cloud.list_instances(lag)
        return [self._observe(ref, [i for i in listed if i.machine == ref.machine], lag) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        lag = self._begin_termination()
        others = [i.id for i in self._cloud.list_instances(lag) if i.machine == ref.machine and i.id != ref.native_id]
        self._end(ref.native_id, *others)

    def end_instance(self, ref: MachineRef) -> None:
        self._begin_termination()
        self._end(ref.native_id)

    def _begin_termination(self) -> float:
        """Return the lag of a termination's list. Raises Unreachable if the call fails."""
        self._fail_sometimes()
        if self._faults.strikes("terminate.failed"):
            raise Unreachable("The cloud did not end it.")
        return self._draw_lag()

    def _end(self, *names: str) -> None:
        ending = [self._cloud.end_on_request(name) for name in names]
        if any(found is not None and found.alive for found in ending):
            raise NotYetGone("It is shutting down.")

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        lag = self._draw_lag()
        ours = [i for i in self._cloud.list_instances(lag) if i.deployment == deployment]
        return [self._ref(i) for i in ours if self._cloud.seen_alive(i, lag)]

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        lag, wanted = self._draw_lag(), {ref.machine for ref in refs}
        found = [i for i in self._cloud.metered(lag) if i.machine in wanted]
        return [Metered(self._ref(i), tuple(Segment(s.since, s.until, s.rate) for s in i.bill)) for i in found]

    def check(self) -> Sequence[Finding]:
        return []

    def _observe(self, ref: MachineRef, found: list[Instance], lag: float) -> Observation:
        if any(self._cloud.seen_alive(i, lag) for i in found):
            return Observation(ref, Seen.UP)
        if any(i.cause == "reclaimed" for i in found):
            return Observation(ref, Seen.INTERRUPTED, "the cloud took it back")
        return Observation(ref, Seen.GONE, found[0].cause if found else "no list shows it")

    def _fail_sometimes(self) -> None:
        if self._faults.storming("cloud") or self._faults.strikes("call.failed"):
            raise Unreachable("Too many requests.")

    def _draw_lag(self) -> float:
        """Return how many seconds behind the list of this call is. Raises Unreachable if the call fails."""
        self._fail_sometimes()
        return 0.0 if self._faults.calm else self._rng.uniform(0.0, LIST_LAG)

    def _ref(self, found: Instance) -> MachineRef:
        return MachineRef(self.name, found.machine, found.id, found.zone)
