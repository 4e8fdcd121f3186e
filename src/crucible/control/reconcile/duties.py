"""Duties, each performed by one process at a time, which holds it under an epoch.

A holder renews its duties before they expire. Its writes are conditional on its epoch, so a process that was paused for
too long changes nothing after another has taken over.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from crucible.control.db import schema as t
from crucible.control.db.clock import database_now
from crucible.control.db.port import Db
from crucible.control.db.statement import Statement, insert_row
from crucible.control.runtime.ports import Clock

HOLD_SECONDS = 20.0
SOON = 0.1
LONGEST_SCOPE = 60


class Duty(enum.StrEnum):
    SCHEDULER = "scheduler"
    POLLER = "poller"
    JANITOR = "janitor"
    RETENTION = "retention"
    NOTIFIER = "notifier"


SHARED = frozenset({Duty.NOTIFIER})
"""Duties with one holder for the whole database, whatever backends the processes are connected to."""


_c = t.roles.c
_ROLE = Statement(select(t.roles).where(_c.name == bindparam("duty")))
_TAKE = Statement(
    update(t.roles)
    .where(_c.name == bindparam("duty"), _c.epoch == bindparam("old_epoch"), _c.holder == bindparam("old_holder"))
    .values(holder=bindparam("holder"), epoch=bindparam("epoch"), until=bindparam("until"))
)
_ADD = Statement(insert_row(t.roles, ["name", "holder", "epoch", "until"]))
_HELD = Statement(
    select(_c.epoch).where(
        _c.name == bindparam("duty"), _c.holder == bindparam("holder"), _c.epoch == bindparam("epoch")
    )
)
_OTHERS = Statement(
    select(_c.until).where(_c.holder != bindparam("holder"), _c.name.in_(bindparam("duties", expanding=True)))
)


def take_duty(conn: Connection, duty: str, holder: str, now: float) -> int | None:
    """Take or renew the duty. Return its epoch, or None if another process has it."""
    row = _ROLE.first(conn, duty=duty)
    if row is None:
        return _insert_duty(conn, duty, holder, now)
    if row["holder"] != holder and row["until"] > now:
        return None
    epoch = int(row["epoch"]) if row["holder"] == holder else int(row["epoch"]) + 1
    old = {"duty": duty, "old_epoch": row["epoch"], "old_holder": row["holder"]}
    taken = _TAKE.run(conn, **old, holder=holder, epoch=epoch, until=now + HOLD_SECONDS)
    return epoch if taken == 1 else None


@dataclass(frozen=True)
class HeldDuties:
    """Duties with the epoch of each. `wait`: the seconds until a duty of another process may be free.

    `scope`: the suffix of the names under which they are held.
    """

    epochs: dict[Duty, int]
    scope: str = ""
    wait: float = 0.0


class Duties:
    """The duties of this process: `has` returns its own knowledge, `holds` asks the database.

    Processes with the same `backends` share duties. A process with other backends has its own, so that no backend
    waits for a process that cannot reach it. `backends` may change: the duties of the new set are taken at the next
    renewal, and those of the old one are held until then.
    """

    def __init__(self, holder: str, backends: Collection[str] = ()) -> None:
        self._holder = holder
        self._backends = backends
        self._held = HeldDuties({})

    async def renew(self, db: Db, clock: Clock) -> float:
        """Take every free duty and renew our own. Return the seconds until a duty of another process may be free."""
        scope = _scope(self._backends)
        self._held = await db.write(lambda conn: self._take(conn, scope, database_now(conn, clock.now)))
        return self._held.wait

    def _take(self, conn: Connection, scope: str, now: float) -> HeldDuties:
        taken = {duty: take_duty(conn, _name(duty, scope), self._holder, now) for duty in Duty}
        duties = [_name(duty, scope) for duty in Duty]
        ends = [end - now for end in _OTHERS.column(conn, holder=self._holder, duties=duties)]
        epochs = {duty: epoch for duty, epoch in taken.items() if epoch is not None}
        return HeldDuties(epochs, scope, max(min(ends, default=HOLD_SECONDS), SOON))

    def has(self, duty: Duty) -> bool:
        return duty in self._held.epochs

    def holds(self, conn: Connection, duty: Duty) -> bool:
        """Return whether the duty is still held under our epoch. Call it in the transaction that writes."""
        held = self._held
        epoch = held.epochs.get(duty)
        if epoch is None:
            return False
        return _HELD.value(conn, duty=_name(duty, held.scope), holder=self._holder, epoch=epoch) is not None


def release_duties(conn: Connection, holder: str) -> None:
    """Give up every duty of the holder, for a clean stop."""
    conn.execute(update(t.roles).where(t.roles.c.holder == holder).values(until=0.0))


def _insert_duty(conn: Connection, duty: str, holder: str, now: float) -> int:
    # If another process inserts it first, the unique key fails, and the whole transaction is run again.
    _ADD.run(conn, name=duty, holder=holder, epoch=1, until=now + HOLD_SECONDS)
    return 1


def _name(duty: Duty, scope: str) -> str:
    return duty.value if duty in SHARED else f"{duty}{scope}"


def _scope(backends: Iterable[str]) -> str:
    names = ",".join(sorted(backends))
    if len(names) > LONGEST_SCOPE:
        names = hashlib.sha256(names.encode()).hexdigest()[:LONGEST_SCOPE]
    return f":{names}" if names else ""
