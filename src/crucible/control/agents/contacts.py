"""When agents were last heard of, kept in memory and stored in batches."""

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
        """Store the contacts, except where another process has stored a newer one."""
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
        """Take back a batch that could not be stored; contacts recorded since then are newer and win."""
        self._attempts = {**batch.attempts, **self._attempts}
        self._machines = {**batch.machines, **self._machines}

    def take(self) -> ContactBatch:
        """Return the contacts recorded since the last call, and start over."""
        batch = ContactBatch(self._attempts, self._machines)
        self._attempts, self._machines = {}, {}
        return batch
