"""The backend `moon`: virtual machines of Moon Cloud. The example of docs/backends.md, and a pattern for clouds."""

from __future__ import annotations

import base64
import gzip
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

from tests.backends.vendor.moon_cloud import ApiError, CallFailed, Client, NoAnswer

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
from crucible.backends.bootstrap import fill_script, script_template
from crucible.backends.catalog_offers import catalog_offers
from crucible.backends.context import BackendContext
from crucible.backends.settings import BackendSettings, SecretValue, setting
from crucible.core.compute.offers import Market, Need, Offer, OnDemand
from crucible.core.compute.pricing import MICROS, Segment
from crucible.core.compute.regions import in_regions
from crucible.core.compute.resources import GiB
from crucible.core.errors import Unreachable
from crucible.wire.documents.bootstrap import Bootstrap

Json = dict[str, Any]

DEPLOYMENT, LAUNCH, MACHINE, RANK = "crucible-deployment", "crucible-launch", "crucible-machine", "crucible-rank"
"""Tags of every instance."""
FACTS = {"native_id": "$(moon-metadata instance-id)"}
INTERRUPTION_URL = "http://169.254.169.254/moon/interruption"
IMAGE, DISK_BYTES = "moon-linux-python3", 30 * GiB
LIST_LAG = 10.0
ACTIONS = frozenset({"create_instances", "list_instances", "terminate_instance", "get_quota"})
REFUSED = frozenset({"InvalidKey", "InvalidParameter", "NoCapacity", "PermissionDenied", "QuotaExceeded"})
"""Errors that say that nothing was created."""
STATES = {"queued": Seen.QUEUED, "pending": Seen.STARTING, "running": Seen.UP, "stopping": Seen.UP}
REASONS = {
    "request": "it was ended on request",
    "power_off": "it turned itself off",
    "max_seconds": "its maximum life was over",
    "spot_interruption": "Moon Cloud took it back",
}


class MoonSettings(BackendSettings):
    """Virtual machines of Moon Cloud."""

    api_key: SecretValue = setting(description="Key of the account.", variables=("MOON_KEY",))
    region: str = setting("tranquility", description="Where the machines are.")


class MoonBackend:
    """`client`: calls the vendor; tests pass that of a fake."""

    name = "moon"
    capabilities = Capabilities(
        reach=Reach.INTERNET,
        capacity=OnDemand(),
        markets=frozenset({Market.ON_DEMAND, Market.SPOT}),
        launch_deadline=20.0,
        settle_window=LIST_LAG,
    )

    def __init__(self, context: BackendContext[MoonSettings], client: Client | None = None) -> None:
        self._context = context
        self._region = context.settings.region
        self._client = client or Client(context.settings.api_key.reveal())

    def offers(self, need: Need) -> Sequence[Offer]:
        if need.regions and not in_regions(self._region, need.regions):
            return []
        return catalog_offers(self._context.catalog(), "moon", replace(need, regions=(self._region,)))

    def call(self, order: MachineOrder) -> LaunchCall:
        offer, limits = order.offer, order.allocation
        parameters: dict[str, object] = {
            "region": offer.region,
            "instance_type": offer.instance_type,
            "market": offer.market.value,
            "name": re.sub(r"[^a-z0-9]+", "-", (order.label or order.machine).lower())[:63],
            "image": order.image or IMAGE,
            "disk_gb": math.ceil((order.disk_bytes or DISK_BYTES) / GiB),
            "open_ports": list(order.ports),
            "max_seconds": order.ends_after,
            "on_poweroff": "terminate",
            "limits": limits and {"vcpus": limits.cpus, "gpus": list(limits.gpus), "memory_bytes": limits.memory_bytes},
            "tags": {DEPLOYMENT: order.deployment, LAUNCH: order.machine},
            "instances": [
                {"tags": {MACHINE: machine, RANK: f"{rank} of {order.ranks}"}, "user_data": self._user_data(machine)}
                for rank, machine in enumerate((order.machine, *order.others), start=order.rank)
            ],
        }
        return LaunchCall(self.name, order.machine, "create_instances", parameters)

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        ordered = cast("list[Json]", call.parameters["instances"])
        instances = [
            {**instance, "user_data": _fill(instance["user_data"], bootstrap)}
            for instance, bootstrap in zip(ordered, bootstraps, strict=True)
        ]
        try:
            made = self._client.call(call.action, **{**call.parameters, "token": call.token, "instances": instances})
        except NoAnswer as error:
            raise LaunchUnknown("Moon Cloud did not answer.", why=f"{error}.") from error
        except ApiError as error:
            return self._not_launched(call, error)
        except CallFailed as error:
            raise unreachable(error) from error
        return [self._ref(instance) for instance in made["instances"]]

    def find(self, token: str) -> Sequence[MachineRef]:
        return self._alive(LAUNCH, token)

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        try:
            known = {found["id"]: found for found in self._list(MACHINE, *(ref.machine for ref in refs))}
        except Unreachable as error:
            return [Observation(ref, Seen.UNREACHABLE, str(error)) for ref in refs]
        return [_observe(ref, known.get(ref.native_id)) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        try:
            found = self._client.call("terminate_instance", id=ref.native_id)["instance"]
        except CallFailed as error:
            if isinstance(error, ApiError) and error.code == "NotFound":
                return
            raise unreachable(error) from error
        if found["state"] != "terminated":
            raise NotYetGone("The instance is stopping.")

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        return self._alive(DEPLOYMENT, deployment)

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        """Return the vendor's meter: from the start to the end of each instance, at its own price."""
        found = self._list(MACHINE, *(ref.machine for ref in refs))
        return [Metered(self._ref(instance), (_segment(instance),)) for instance in found if instance["started_at"]]

    def check(self) -> Sequence[Finding]:
        try:
            key = self._client.call("describe_key")
        except CallFailed as error:
            if not isinstance(error, ApiError) or error.code != "InvalidKey":
                raise unreachable(error) from error
            fix = "Make a key at https://moon.example/keys."
            return [Finding("the key is valid", ok=False, why=f"{error}.", fix=fix)]
        missing = ", ".join(sorted(ACTIONS.difference(key["actions"])))
        rights = Finding(
            "the key may do what is needed", not missing, f"It may not {missing}.", "Add the rights to the key's role."
        )
        found = [Finding(f"the key is valid, for the account {key['account']}"), rights]
        return [*found, self._check_prices(), *([] if missing else [self._check_quota()])]

    # Checks

    def _check_prices(self) -> Finding:
        offers = self.offers(Need())
        fix = "Set its `region` to one that `crucible catalog list --provider moon` shows."
        return Finding(f"{len(offers)} prices in {self._region}", bool(offers), "The catalog has none there.", fix)

    def _check_quota(self) -> Finding:
        what = f"quota in {self._region}"
        try:
            quota = self._client.call("get_quota", region=self._region)
        except CallFailed as error:
            if not isinstance(error, ApiError) or error.code != "UnknownRegion":
                raise unreachable(error) from error
            return Finding(what, ok=False, why=f"{error}.", fix="Set its `region` to one of the account's.")
        left = quota["vcpus"] - quota["used"]
        why = f"{quota['used']} of {quota['vcpus']} vCPUs are in use."
        return Finding(f"{what}: {left} vCPUs left", left > 0, why, "Ask for more at https://moon.example/quota.")

    # Launching

    def _user_data(self, machine: str) -> str:
        """Return the script, after which the machine turns itself off: once the agent has ended, nothing bills."""
        folder = f"/var/lib/crucible/machines/{machine}"
        return script_template(self._context.agent_file, folder, facts=FACTS, then="poweroff")

    def _not_launched(self, call: LaunchCall, error: ApiError) -> Sequence[MachineRef]:
        """Return the machines of an earlier call with this token, or raise what the error means."""
        if error.code == "TokenReused":
            # The bootstrap differs because the server has moved since. What the first call made is what counts.
            found = self.find(call.token)
            if found:
                return found
        if error.code in REFUSED:
            raise LaunchRefused("Moon Cloud refused the machine.", why=f"{error}.") from error
        if error.code == "Throttled":
            raise unreachable(error) from error
        raise LaunchUnknown("Moon Cloud may have made the machine.", why=f"{error}.") from error

    # Calls

    def _list(self, tag: str, *values: str) -> list[Json]:
        """Return every instance with one of these values of the tag, from all pages."""
        found, page = [], 0
        while page is not None:
            try:
                answer = self._client.call("list_instances", tag=tag, values=sorted(set(values)), page=page)
            except CallFailed as error:
                raise unreachable(error) from error
            found += answer["instances"]
            page = answer["next"]
        return found

    def _alive(self, tag: str, value: str) -> list[MachineRef]:
        return [self._ref(instance) for instance in self._list(tag, value) if instance["state"] != "terminated"]

    def _ref(self, instance: Json) -> MachineRef:
        return MachineRef(self.name, instance["tags"][MACHINE], instance["id"], instance["region"])


def _fill(template: str, bootstrap: Bootstrap) -> str:
    """Return the complete user data, a secret. Compressed, because the vendor takes at most 16 KB of it.

    The same bootstrap gives the same bytes (`mtime`), as the vendor compares the parameters of a token.
    """
    complete = replace(bootstrap, shared=False, interruption_url=INTERRUPTION_URL)
    script = fill_script(template, complete, variables={})
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()


def _observe(ref: MachineRef, instance: Json | None) -> Observation:
    if instance is None:
        return Observation(ref, Seen.GONE, "Moon Cloud does not list it")
    state, reason = instance["state"], instance["reason"]
    gone = Seen.INTERRUPTED if reason == "spot_interruption" else Seen.GONE
    detail = "it waits for capacity in Moon Cloud's queue" if state == "queued" else REASONS.get(reason, reason)
    return Observation(ref, STATES.get(state, gone), detail, instance["started_at"])


def _segment(instance: Json) -> Segment:
    rate = int(Decimal(instance["dollars_per_hour"]) * MICROS)
    return Segment(instance["started_at"], instance["ended_at"], rate, instance["id"])


def unreachable(error: CallFailed) -> Unreachable:
    fix = "Try again later; https://moon.example/status shows its faults."
    return Unreachable("Moon Cloud cannot be asked.", why=f"{error}.", fix=fix)
