"""A simulated administrator of the project: creates its hook, sets its secrets and rotates their keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from crucible.control.control_plane import ControlPlane
from crucible.core.errors import CrucibleError
from crucible.core.hooks import HookFormat
from crucible.core.people.identity import DEFAULT_PROJECT, OWNER
from crucible.core.secret import Secret
from crucible.core.signing import KEY_BYTES, signing_secret
from crucible.simulation.faults.checks.notifications import EVENTS, NotificationCheck
from crucible.simulation.faults.checks.secrets import SecretHistory, SecretsCheck
from crucible.simulation.faults.fault_rates import RandomStream
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.world.api import ApiClient
from crucible.simulation.faults.world.network import NoAnswer
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.simulation.faults.world.webhook_receiver import WebhookReceiver

RETRY_SECONDS = 5.0
MAX_HOOK_ATTEMPTS = 15
"""Fewer than the hooks that a project may have: each attempt may create one."""
SECRETS_SHARE = 0.5
"""Share of the seeds with secrets."""
BETWEEN_SECONDS = 400.0
NAMES = ("HF_TOKEN", "WANDB_API_KEY")


class Administrator:
    """Creates a hook if there is a receiver; sets secrets and rotates their keys, without retries."""

    def __init__(
        self,
        api: ApiClient,
        receiver: WebhookReceiver | None,
        notifications: NotificationCheck,
        secrets: SecretsCheck,
        trace: Trace,
        rng: RandomStream,
    ) -> None:
        self._api = api
        self._receiver = receiver
        self._notifications = notifications
        self._secrets = secrets
        self._trace = trace
        self._rng = rng
        self._written = 0

    def start(self, tasks: TaskGroup) -> None:
        if self._receiver is not None:
            tasks.start(self._make_hook(self._receiver))
        if self._rng.chance(SECRETS_SHARE):
            tasks.start(self._keep_secrets())

    async def _make_hook(self, receiver: WebhookReceiver) -> None:
        """Create a hook. Each attempt has a new URL: after a lost response the hook may exist or not."""
        await asyncio.sleep(self._rng.waiting_time(200.0))
        for n in range(MAX_HOOK_ATTEMPTS):
            url = f"https://receiver/{n}"
            secret = signing_secret(self._rng.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES))
            receiver.open(url, secret)
            if await self._ask(url, _hook(url, secret)):
                return self._notifications.record_hook(url)
            await asyncio.sleep(RETRY_SECONDS)

    async def _keep_secrets(self) -> None:
        while not self._api.faults.calm:
            await asyncio.sleep(self._rng.waiting_time(BETWEEN_SECONDS))
            if self._rng.chance(0.5):
                await self._ask("rotate", lambda control: control.secrets.rotate(OWNER))
            else:
                await self._set(self._rng.choose(NAMES))

    async def _set(self, name: str) -> None:
        self._written += 1
        value, entry = f"value {self._written}", self._secrets.entries[name]
        if await self._ask(f"{name} is {value}", _secret(name, value, entry)):
            entry.acknowledge(value)

    async def _ask(self, what: str, request: Callable[[ControlPlane], Awaitable[object]]) -> bool:
        """Send a request. Return whether it succeeded."""
        try:
            await self._api.ask(request)
        except (NoAnswer, CrucibleError) as error:
            self._trace("steward", f"{what}: {type(error).__name__}")
            return False
        self._trace("steward", f"{what} is acknowledged")
        return True


def _hook(url: str, secret: Secret) -> Callable[[ControlPlane], Awaitable[object]]:
    return lambda control: control.hooks.add(
        OWNER, DEFAULT_PROJECT, url, events=EVENTS, format=HookFormat.JSON, secret=secret
    )


def _secret(name: str, value: str, entry: SecretHistory) -> Callable[[ControlPlane], Awaitable[object]]:
    async def put(control: ControlPlane) -> None:
        entry.begin(value)
        try:
            await control.secrets.set(OWNER, DEFAULT_PROJECT, name, Secret(value))
        finally:
            entry.end(value)

    return put
