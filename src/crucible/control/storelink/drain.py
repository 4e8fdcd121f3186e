"""Keep attempts of a gone machine open until its mailbox is drained: what it wrote before it was gone counts.

Batches that are still to be stored count as contacts of their attempt, and so does a mailbox that could not be read
yet. Both for a limited time: a store that never answers again must not keep a job forever.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from crucible.control.agents.agents import Agents
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.runtime.ports import Ports
from crucible.control.upkeep import restore_hold
from crucible.core.lifecycle import AttemptState, MachineState

LIMIT_SECONDS = 1800.0
"""How long after a machine's end its mailbox is waited for."""
HOLD_SECONDS = 2.0
"""Seconds between two contacts recorded for an attempt, shorter than the silence that ends it."""


_m, _a, _s = t.machines.c, t.attempts.c, t.slots.c
_OPEN = Statement(
    select(_m.id, _a.id.label("attempt"), _m.gone_at, _a.last_seen)
    .select_from(t.machines.join(t.slots, _s.machine == _m.id).join(t.attempts, _a.id == _s.attempt))
    .where(
        _m.state == MachineState.GONE.value,
        _m.gone_at.is_not(None),
        _m.backend.in_(bindparam("backends", expanding=True)),
        _s.ended.is_(False),
        _a.state != AttemptState.ENDED.value,
    )
    .distinct()
)


@dataclass(frozen=True)
class _UnreadAttempt:
    """An open attempt on a machine that is gone. `heard`: it was ever heard of."""

    machine: str
    attempt: str
    gone_at: float
    heard: bool


class MailboxDrain:
    def __init__(self, ports: Ports, agents: Agents, backends: Collection[str]) -> None:
        self._ports = ports
        self._agents = agents
        self._backends = backends
        self._more: dict[str, bool] = {}
        self._held_at: dict[str, float] = {}

    def record_poll(self, machine: str, *, left: bool) -> None:
        """Record a poll of a gone machine's mailbox. `left`: there is more to store."""
        self._more[machine] = left

    async def hold_unread(self, among: Collection[str] | None = None) -> list[str]:
        """Record a contact for each attempt whose machine's mailbox is not drained; return all such machines.

        `among`: machines that may have a mailbox; None: any.
        """
        now = self._ports.clock.now()
        every, limit = await self._ports.db.read(
            lambda conn: (_load_unread(conn, sorted(self._backends)), _limit(conn))
        )
        found = [item for item in every if among is None or item.machine in among]
        self._forget(found)
        for item in found:
            if now - item.gone_at < limit and self._is_unread(item) and self._is_due(item.attempt, now):
                self._held_at[item.attempt] = now
                await self._agents.record_contact(item.attempt)
        return [item.machine for item in found]

    def _is_unread(self, item: _UnreadAttempt) -> bool:
        """Return whether the mailbox may hold more; before the first poll, only if the attempt was ever heard of."""
        return self._more.get(item.machine, item.heard)

    def _is_due(self, attempt: str, now: float) -> bool:
        return now - self._held_at.get(attempt, -math.inf) >= HOLD_SECONDS

    def _forget(self, found: list[_UnreadAttempt]) -> None:
        machines, attempts = {item.machine for item in found}, {item.attempt for item in found}
        self._more = {name: left for name, left in self._more.items() if name in machines}
        self._held_at = {name: at for name, at in self._held_at.items() if name in attempts}


def _load_unread(conn: Connection, backends: list[str]) -> list[_UnreadAttempt]:
    rows = _OPEN.all(conn, backends=backends)
    return [_UnreadAttempt(row["id"], row["attempt"], row["gone_at"], row["last_seen"] is not None) for row in rows]


def _limit(conn: Connection) -> float:
    """Return how long to wait; without limit while a restore is unconfirmed, since nothing is stored until then."""
    return math.inf if restore_hold.is_held(conn) else LIMIT_SECONDS
