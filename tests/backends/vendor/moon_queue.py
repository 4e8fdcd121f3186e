"""The backend `moon-queue`: the same machines by Moon Cloud's queue for capacity, those of a gang in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.backends.vendor.moon import MoonBackend, unreachable
from tests.backends.vendor.moon_cloud import ApiError, CallFailed

from crucible.backends.base import AlreadyStarted, LaunchCall, MachineOrder, MachineRef
from crucible.core.compute.offers import Availability, Need, Offer, ProviderQueue


class MoonQueueBackend(MoonBackend):
    """`wait` in a launch makes instances that wait for capacity. They end as others do, or are cancelled before."""

    name = "moon-queue"
    capabilities = replace(MoonBackend.capabilities, capacity=ProviderQueue(limit=4), gang_in_one_call=True)

    def offers(self, need: Need) -> Sequence[Offer]:
        found = super().offers(need)
        return [replace(offer, backend=self.name, availability=Availability.QUEUED) for offer in found]

    def call(self, order: MachineOrder) -> LaunchCall:
        call = super().call(order)
        return replace(call, parameters={**call.parameters, "wait": True})

    def withdraw(self, ref: MachineRef) -> None:
        try:
            self._client.call("cancel_instance", id=ref.native_id)
        except CallFailed as error:
            code = error.code if isinstance(error, ApiError) else ""
            if code == "AlreadyStarted":
                raise AlreadyStarted("The machine has started.") from error
            if code != "NotFound":
                raise unreachable(error) from error
