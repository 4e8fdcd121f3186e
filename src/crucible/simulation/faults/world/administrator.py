"""A steward: somebody who looks after the project, its hook, its secrets and their keys."""

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

AGAIN_SECONDS = 5.0
HOOKS = 15
"""Tries to have one: a project has room for a few more."""
KEEPERS = 0.5
"""The part of them who have secrets."""
BETWEEN_SECONDS = 400.0
NAMES = ("HF_TOKEN", "WANDB_API_KEY")


class Administrator:
    """Makes a hook where there is a receiver; sets secrets and rotates their keys, asking once."""

    def __init__(
        self,
        door: ApiClient,
        receiver: WebhookReceiver | None,
        notices: NotificationCheck,
        safe: SecretsCheck,
        trace: Trace,
        dice: RandomStream,
    ) -> None:
        self._door = door
        self._receiver = receiver
        self._notices = notices
        self._safe = safe
        self._trace = trace
        self._dice = dice
        self._written = 0

    def start(self, crew: TaskGroup) -> None:
        if self._receiver is not None:
            crew.start(self._make_hook(self._receiver))
        if self._dice.chance(KEEPERS):
            crew.start(self._keep_secrets())

    async def _make_hook(self, receiver: WebhookReceiver) -> None:
        """Each try has an address of its own: where no answer came there may be a hook, and nobody relies on it."""
        await asyncio.sleep(self._dice.waiting_time(200.0))
        for n in range(HOOKS):
            url = f"https://receiver/{n}"
            secret = signing_secret(self._dice.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES))
            receiver.open(url, secret)
            if await self._ask(url, _hook(url, secret)):
                return self._notices.record_hook(url)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _keep_secrets(self) -> None:
        while not self._door.faults.calm:
            await asyncio.sleep(self._dice.waiting_time(BETWEEN_SECONDS))
            if self._dice.chance(0.5):
                await self._ask("rotate", lambda control: control.secrets.rotate(OWNER))
            else:
                await self._set(self._dice.choose(NAMES))

    async def _set(self, name: str) -> None:
        self._written += 1
        value, entry = f"value {self._written}", self._safe.entries[name]
        if await self._ask(f"{name} is {value}", _secret(name, value, entry)):
            entry.acknowledge(value)

    async def _ask(self, what: str, request: Callable[[ControlPlane], Awaitable[object]]) -> bool:
        """Whether it was answered with a yes."""
        try:
            await self._door.ask(request)
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
