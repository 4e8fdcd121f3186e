"""Send messages, signed with the hook's secret, and manage that secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from crucible.control.hooks.messages import Message
from crucible.control.hooks.rows import Hook
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.runtime.durations import DurationHistogram
from crucible.control.runtime.ports import Ports
from crucible.control.secrets import Vault
from crucible.core.errors import NotFound, Trouble
from crucible.core.hooks import OVERLAP, Reply
from crucible.core.secret import Secret
from crucible.core.signing import sign_message


class WebhookTransport(Protocol):
    """Sends messages to receivers over HTTP; see integrations.webhook."""

    def now(self) -> float:
        """Return the real time, even in a simulation, because receivers compare it with theirs."""

    async def check(self, url: str) -> None:
        """Raise BadInput, RefusedByPolicy or Unreachable for an address that cannot be called."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send the message, and return the reply within a timeout. A failure is in the reply, not raised."""


@dataclass(frozen=True)
class SendResult:
    at: float
    seconds: float
    reply: Reply


class SendStats:
    """Counts of delivered and failed messages, and how long they took."""

    def __init__(self) -> None:
        self.delivered = self.failed = 0
        self.times = DurationHistogram()

    def add(self, sent: SendResult) -> None:
        self.times.add(sent.seconds)
        self.delivered += sent.reply.accepted
        self.failed += not sent.reply.accepted


class Sender:
    def __init__(self, ports: Ports, vault: Vault, post: WebhookTransport | None) -> None:
        self._ports = ports
        self._vault = vault
        self._transport = post
        self.stats = SendStats()

    @property
    def can_send(self) -> bool:
        return self._transport is not None

    async def check(self, url: str) -> None:
        await self._require_transport().check(url)

    async def send(self, hook: Hook, message: Message) -> SendResult:
        began = self._ports.clock.now()
        reply = await self._reply(hook, message, began)
        sent = SendResult(began, max(self._ports.clock.now() - began, 0.0), reply)
        self.stats.add(sent)
        return sent

    async def _reply(self, hook: Hook, message: Message, now: float) -> Reply:
        try:
            secrets = await self._ports.db.read(lambda conn: self.secrets(conn, hook, now))
        except (NotFound, Trouble) as error:
            return Reply(None, str(error))
        transport = self._require_transport()
        headers = sign_message(secrets, message.id, message.body, transport.now())
        crashpoint("hook.before_call")
        reply = await transport.post(hook.url, message.body, headers)
        crashpoint("hook.after_call")
        return reply

    # secrets

    def put_secret(self, conn: Connection, hook: Hook, secret: Secret, now: float, by: str) -> None:
        self._vault.put(conn, hook.project, hook.secret_name, secret, now, by)

    def replace_secret(self, conn: Connection, hook: Hook, secret: Secret, now: float, by: str) -> None:
        """Set a new secret. The old one also signs for a while, for receivers that do not have the new one yet."""
        try:
            old = [secret.reveal() for secret in self.secrets(conn, hook, now)[:1]]
        except (NotFound, Trouble):
            old = []  # the key that encrypted it is lost
        self.put_secret(conn, hook, Secret(" ".join([secret.reveal(), *old])), now, by)

    def secrets(self, conn: Connection, hook: Hook, now: float) -> list[Secret]:
        """Return the secrets to sign with, newest first. Raises NotFound or Trouble."""
        value = self._vault.values(conn, hook.project, {"": hook.secret_name})[""]
        secrets = [Secret(text) for text in value.reveal().split()]
        recent = hook.rotated_at is not None and now - hook.rotated_at < OVERLAP
        return secrets if recent else secrets[:1]

    def delete_secret(self, conn: Connection, hook: Hook) -> None:
        self._vault.delete(conn, hook.project, hook.secret_name)

    def _require_transport(self) -> WebhookTransport:
        if self._transport is None:
            raise Trouble(
                "This server sends no notifications.", fix="Use a server that was started with `crucible up`."
            )
        return self._transport
