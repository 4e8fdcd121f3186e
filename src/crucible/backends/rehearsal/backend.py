"""The backend `rehearsal`: rents machines from a simulated cloud, as other backends do from real ones.

A machine is every instance that carries its tag. Usually that is one; a provider that ignores tokens may have created
two. Then the machine lives while either does, and both are terminated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

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
from crucible.backends.context import BackendContext
from crucible.backends.rehearsal.connection import CallFailed, Connection, ErrorAnswer, Json, NotSent
from crucible.backends.rehearsal.instances import MACHINE_TAG, Instance, observe, parse_instance
from crucible.backends.rehearsal.offers import documents, make_offers
from crucible.backends.rehearsal.settings import RehearsalSettings
from crucible.backends.rehearsal.start_cloud import start_cloud, stop_idle_cloud
from crucible.core.compute.offers import Market, Need, Offer, OnDemand
from crucible.core.errors import BadInput, Unreachable
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.machines.launching import host_environment

ACTION = "create_instance"
DEPLOYMENT_TAG = "crucible-deployment"
LAUNCH_DEADLINE = 10.0
LIST_LAG = 5.0
LIST_SECONDS = 15.0
"""Deadline for all pages of one list."""
IDLE_EXIT_SECONDS = 60
STATE = "rehearsal"
"""Name of the cloud's folder in the state folder."""
LEAVE_SECONDS = 1.0
"""How long a stopping server waits for its idle cloud to end."""
FACTS = {"native_id": "$CLOUD_INSTANCE_ID", "interruption_url": "$CLOUD_METADATA_URL/interruption"}
"""Fields of the bootstrap that only the machine knows, from the variables that the cloud sets there."""
_TAGS_A_CALL = 50
_MISMATCH = "idempotent_parameter_mismatch"


class RehearsalBackend:
    """`state`: the cloud's folder (start_cloud). `list_lag`: seconds by which its lists may be behind.

    `keep_up` is called before each list of offers, and `leave` when the server stops: they start and stop a cloud that
    belongs to this deployment.
    """

    name = "rehearsal"

    def __init__(
        self,
        context: BackendContext[RehearsalSettings],
        state: Path | None = None,
        list_lag: float = LIST_LAG,
        keep_up: Callable[[], object] = lambda: None,
        leave: Callable[[], object] = lambda: None,
    ) -> None:
        self._context = context
        self._keep_up = keep_up
        self._leave = leave
        self._cloud = Connection(state or context.home / STATE)
        self.capabilities = Capabilities(
            reach=Reach.LOOPBACK,
            capacity=OnDemand(),
            markets=frozenset(Market),
            bills=True,
            agent_python=context.python,
            simulated=True,
            launch_deadline=LAUNCH_DEADLINE,
            settle_window=list_lag,
        )

    def leave(self) -> None:
        self._leave()

    def offers(self, need: Need) -> Sequence[Offer]:
        self._keep_up()
        types, items = self._get_types(), self._get_items()
        return make_offers(self.name, need.resources, types, items, self._context.timestamp())

    def call(self, order: MachineOrder) -> LaunchCall:
        parameters: dict[str, object] = {
            "zone": order.offer.region,
            "type": order.offer.instance_type,
            "market": order.offer.market.value,
            "tags": {DEPLOYMENT_TAG: order.deployment, MACHINE_TAG: order.machine},
            "ends_at": order.ends_at,
            "on_exit": "terminate",
            "user_data": script_template(
                self._context.agent_file, ".", cache="agents", python=self._context.python, facts=FACTS
            ),
        }
        return LaunchCall(self.name, order.machine, ACTION, parameters)

    def launch(self, call: LaunchCall, bootstraps: Sequence[Bootstrap]) -> Sequence[MachineRef]:
        (bootstrap,) = bootstraps
        try:
            answer = self._cloud.call("POST", "/v1/instances", self._request(call, bootstrap))
        except NotSent as error:
            raise _unreachable(error) from error
        except ErrorAnswer as error:
            return [self._not_launched(call, error)]
        except CallFailed as error:
            raise LaunchUnknown("The simulated cloud did not respond.", why=f"{error}.") from error
        found = parse_instance(answer.get("instance"))
        if found is None:
            raise LaunchUnknown("The simulated cloud's response is invalid.")
        return [self._ref(found)]

    def find(self, token: str) -> Sequence[MachineRef]:
        found = self._list(MACHINE_TAG, token)
        return [self._ref(instance) for instance in found if instance.alive][:1]

    def poll(self, refs: Sequence[MachineRef]) -> Sequence[Observation]:
        try:
            known = list(self._with_tags([ref.machine for ref in refs]))
        except Unreachable as error:
            return [Observation(ref, Seen.UNREACHABLE, str(error)) for ref in refs]
        return [observe(ref, [i for i in known if i.machine == ref.machine]) for ref in refs]

    def terminate(self, ref: MachineRef) -> None:
        """End the instance, listed or not; then other instances of the machine that are listed."""
        ending = self._end(ref.native_id)
        for instance in self._with_tags([ref.machine]):
            if instance.id != ref.native_id and instance.alive:
                ending |= self._end(instance.id)
        if ending:
            raise NotYetGone("The instance is shutting down.")

    def end_instance(self, ref: MachineRef) -> None:
        if self._end(ref.native_id):
            raise NotYetGone("The instance is shutting down.")

    def owned(self, deployment: str) -> Sequence[MachineRef]:
        found = self._list(DEPLOYMENT_TAG, deployment)
        return [self._ref(instance) for instance in found if instance.alive]

    def metered(self, refs: Sequence[MachineRef]) -> Sequence[Metered]:
        """Return what the cloud metered for each instance of these machines."""
        found = self._with_tags([ref.machine for ref in refs], segments="true")
        return [Metered(self._ref(instance), instance.segments) for instance in found]

    def check(self) -> Sequence[Finding]:
        self._keep_up()
        types, items = self._get_types(), self._get_items()
        return [Finding(f"the simulated cloud answers: {len(types)} instance types, {len(items)} prices", bool(items))]

    # Launching

    def _request(self, call: LaunchCall, bootstrap: Bootstrap) -> Json:
        script = call.parameters.get("user_data")
        if call.action != ACTION or not isinstance(script, str):
            raise BadInput(f"{call.action!r} of {call.token!r} is not a launch call of the backend 'rehearsal'.")
        complete = replace(
            bootstrap,
            machine=call.token,
            agents_url_file=str(self._context.agents_url_file),
            # Shared because it runs here: on a real cloud every machine builds its own environments, with its own uv.
            envs=self._context.home / "envs",
            uv=self._context.uv,
            idle_exit_seconds=IDLE_EXIT_SECONDS,
            shared=False,
        )
        filled = fill_script(script, complete, host_environment(self._context.environ))
        return {**call.parameters, "client_token": call.token, "user_data": filled}

    def _not_launched(self, call: LaunchCall, error: ErrorAnswer) -> MachineRef:
        """Raise LaunchRefused only for an error that says that nothing was created, else LaunchUnknown."""
        if error.code == _MISMATCH:
            return self._launched_before(call, error)
        if error.status == 429:
            raise _unreachable(error) from error
        if error.status >= 500:
            raise LaunchUnknown("The simulated cloud failed to create the instance.", why=f"{error}.") from error
        raise LaunchRefused("The simulated cloud refused the instance.", why=f"{error}.") from error

    def _launched_before(self, call: LaunchCall, error: ErrorAnswer) -> MachineRef:
        """Return the machine of a token that was used before with other parameters.

        They differ because the server has restarted since, with another URL for agents.
        """
        found = self.find(call.token)
        if not found:
            raise LaunchUnknown("The machine was created before, and is not shown yet.", why=f"{error}.") from error
        return found[0]

    # Calls

    def _get_types(self) -> list[Json]:
        return list(documents(self._get("/v1/types"), "types"))

    def _get_items(self) -> list[Json]:
        """Return the items of the cloud's price list."""
        return list(documents(self._get("/v1/offers"), "offers"))

    def _get(self, path: str) -> Json:
        try:
            return self._cloud.call("GET", path)
        except CallFailed as error:
            raise _unreachable(error) from error

    def _list(self, tag: str, values: str, **more: str) -> list[Instance]:
        try:
            pages = self._cloud.pages(time.monotonic() + LIST_SECONDS, {f"tag:{tag}": values, **more})
            return [found for found in map(parse_instance, pages) if found is not None]
        except CallFailed as error:
            raise _unreachable(error) from error

    def _with_tags(self, machines: Sequence[str], **more: str) -> Iterator[Instance]:
        """Yield every listed instance with the tag of one of these machines."""
        names = sorted(set(machines))
        for start in range(0, len(names), _TAGS_A_CALL):
            wanted = ",".join(names[start : start + _TAGS_A_CALL])
            yield from self._list(MACHINE_TAG, wanted, **more)

    def _end(self, native_id: str) -> bool:
        """Terminate an instance, and return whether it still runs. An unknown one does not."""
        try:
            answer = self._cloud.call("DELETE", f"/v1/instances/{quote(native_id, safe='')}")
        except ErrorAnswer as error:
            if error.status == 404:
                return False
            raise _unreachable(error) from error
        except CallFailed as error:
            raise _unreachable(error) from error
        found = parse_instance(answer.get("instance"))
        return found is None or found.alive

    def _ref(self, instance: Instance) -> MachineRef:
        return MachineRef(self.name, instance.machine, instance.id, instance.zone)


def _unreachable(error: CallFailed) -> Unreachable:
    wait = error.retry_after if isinstance(error, ErrorAnswer) else None
    return Unreachable(
        "The simulated cloud does not respond.",
        why=f"{error}.",
        fix="`crucible backends` shows whether it runs.",
        retry_after=wait,
    )


def make_backend(context: BackendContext[RehearsalSettings]) -> RehearsalBackend:
    """Return the backend for a server: its cloud is started when it is first used, and stopped with the server if idle.

    A cloud that other servers use too (the setting `state`) is never stopped.
    """
    state = context.settings.state or context.home / STATE
    try:
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fix = "Set its `state` to a folder in one that the server can write to."
        raise BadInput(f"The folder {state} cannot be made.", why=f"{error}.", fix=fix) from error
    keep_up = partial(start_cloud, state, python=context.python)
    if context.settings.state is not None:
        return RehearsalBackend(context, state, keep_up=keep_up)
    return RehearsalBackend(context, state, keep_up=keep_up, leave=partial(stop_idle_cloud, state, LEAVE_SECONDS))
