"""The outbox: effects that are decided but not done yet, each claimed by one worker at a time.

Effects of one machine are claimed in the order in which they were decided. A claim outlasts the calls made under it. A
worker that held one for too long finds out, when it releases it, that another has taken it over.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, case, exists, or_, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.reconcile import repository
from crucible.core.lifecycle import EffectKind, Machine

CALL_DEADLINE = 30.0
CLAIM_SECONDS = CALL_DEADLINE * 4
UNCONNECTED_SECONDS = 60.0
"""Time that effects of a backend that is not connected here wait for a worker that is connected to it."""


_c = t.effects.c
_older = t.effects.alias("older")
_FREE = or_(_c.claimed_until.is_(None), _c.claimed_until <= bindparam("now"))
_FIRST = ~exists().where(_older.c.machine == _c.machine, _older.c.done.is_(False), _older.c.id < _c.id)
"""True for effects without an older open effect of the same machine."""
_CONNECTED = exists().where(
    t.machines.c.id == _c.machine, t.machines.c.backend.in_(bindparam("backends", expanding=True))
)
_DUE_AT = _c.not_before + case((_CONNECTED, 0.0), else_=UNCONNECTED_SECONDS)
_DUE = Statement(
    select(_c.id, _c.kind, _c.tries, _c.machine).where(_c.done.is_(False), bindparam("now") >= _DUE_AT, _FREE, _FIRST)
)
_NEXT = Statement(select(_DUE_AT.label("due_at"), _c.claimed_until).where(_c.done.is_(False), _FIRST))
_TAKE = Statement(
    update(t.effects)
    .where(_c.id == bindparam("effect"), _c.done.is_(False), _FREE)
    .values(claimed_by=bindparam("claimed_by"), claimed_until=bindparam("claimed_until"), tries=_c.tries + 1)
)
_MINE = update(t.effects).where(
    _c.id == bindparam("effect"), _c.claimed_by == bindparam("worker"), _c.claimed_until == bindparam("until")
)
_FREED = {"claimed_by": None, "claimed_until": None}
_DONE = Statement(_MINE.values(**_FREED, done=True, error=None))
_LATER = Statement(_MINE.values(**_FREED, error=bindparam("error"), not_before=bindparam("not_before")))


@dataclass(frozen=True)
class ClaimedEffect:
    """An effect claimed by this worker. `tries` counts earlier claims: with 0, its call was certainly never sent.

    `members`: the machines that a launch makes, by rank; empty if it is not sent.
    """

    id: int
    kind: EffectKind
    tries: int
    machine: Machine
    until: float
    members: tuple[Machine, ...] = ()


class Outbox:
    """The effects that this worker performs: those of `backends`, and after a while those that no worker has claimed.

    The latter fail, but visibly: an effect that no process can perform must not wait silently. `backends` may change.
    """

    def __init__(self, worker: str, backends: Collection[str]) -> None:
        self._worker = worker
        self._backends = backends

    def claim(self, conn: Connection, now: float) -> list[ClaimedEffect]:
        """Claim and return all effects that are due and free."""
        rows = [
            row for row in _DUE.all(conn, now=now, backends=sorted(self._backends)) if self._take(conn, row["id"], now)
        ]
        machines = repository.load_machines(conn, {row["machine"] for row in rows})
        return [_to_claimed(row, machines[row["machine"]], now) for row in rows]

    def mark_done(self, conn: Connection, effect: ClaimedEffect) -> bool:
        """Mark the effect done. Return False if another worker has taken over the claim."""
        return self._release(conn, effect, _DONE)

    def postpone(self, conn: Connection, effect: ClaimedEffect, why: str, not_before: float) -> None:
        self._release(conn, effect, _LATER, error=why, not_before=not_before)

    def next_due(self, conn: Connection) -> float | None:
        """Return when the next effect may be performed, given waits, claims and the order within a machine."""
        rows = _NEXT.all(conn, backends=sorted(self._backends))
        return min((max(row["due_at"], row["claimed_until"] or 0.0) for row in rows), default=None)

    def _take(self, conn: Connection, effect: int, now: float) -> bool:
        """Claim the effect. Return False if another worker was faster."""
        claim = {"claimed_by": self._worker, "claimed_until": now + CLAIM_SECONDS}
        return _TAKE.run(conn, effect=effect, now=now, **claim) == 1

    def _release(self, conn: Connection, effect: ClaimedEffect, statement: Statement, **values: object) -> bool:
        """Release the claim. Return False if another worker has taken it over."""
        return statement.run(conn, effect=effect.id, worker=self._worker, until=effect.until, **values) == 1


def _to_claimed(row: Row, machine: Machine, now: float) -> ClaimedEffect:
    return ClaimedEffect(row["id"], EffectKind(row["kind"]), row["tries"], machine, now + CLAIM_SECONDS)
