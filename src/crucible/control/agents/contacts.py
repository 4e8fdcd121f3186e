"""Contacts: when agents were last heard of, kept in memory and stored in batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, bindparam, or_, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement


def _update_last_seen(table: Table) -> Statement:
    older = or_(table.c.last_seen.is_(None), table.c.last_seen < bindparam("last_seen"))
    mine = update(table).where(table.c.id == bindparam("name"), older)
    return Statement(mine.values(last_seen=bindparam("last_seen")))


_ATTEMPT, _MACHINE = _update_last_seen(t.attempts), _update_last_seen(t.machines)


@dataclass(frozen=True)
class ContactBatch:
    attempts: Mapping[str, float] = field(default_factory=dict)
    machines: Mapping[str, float] = field(default_factory=dict)

    def store(self, conn: Connection) -> None:
        """Another process may have heard of one since: that stays."""
        for statement, seen in ((_ATTEMPT, self.attempts), (_MACHINE, self.machines)):
            for name, at in seen.items():
                statement.run(conn, name=name, last_seen=at)


class Contacts:
    def __init__(self) -> None:
        self._attempts: dict[str, float] = {}
        self._machines: dict[str, float] = {}

    @property
    def has_pending(self) -> bool:
        return bool(self._attempts or self._machines)

    def record_attempt(self, attempt: str, now: float) -> None:
        self._attempts[attempt] = now

    def record_machine(self, machine: str, now: float) -> None:
        self._machines[machine] = now

    def restore(self, batch: ContactBatch) -> None:
        """What could not be stored waits for the next time; what has come meanwhile is newer."""
        self._attempts = {**batch.attempts, **self._attempts}
        self._machines = {**batch.machines, **self._machines}

    def take(self) -> ContactBatch:
        """What has gathered since the last call."""
        batch = ContactBatch(self._attempts, self._machines)
        self._attempts, self._machines = {}, {}
        return batch
