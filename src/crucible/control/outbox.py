"""The outbox: effects that were wanted and are not done yet, each held by one worker at a time.

Effects of one machine come in the order they were wanted. A claim outlasts the calls made under it; who holds
one too long finds, when putting it down, that it is another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, and_, case, exists, or_, select, update

from crucible.control import repository
from crucible.control.db import schema as t
from crucible.core.lifecycle import EffectKind, Machine

CALL_DEADLINE = 30.0
CLAIM_SECONDS = CALL_DEADLINE * 4
OTHERS_SECONDS = 60.0
"""How long the effects at a place that is not connected here wait for a worker that has it."""


@dataclass(frozen=True)
class Claimed:
    """`tries` counts the claims before this one: 0 means that the call has certainly never been made."""

    id: int
    kind: EffectKind
    tries: int
    machine: Machine
    until: float


class Outbox:
    """What this worker does: the effects at `places`. Others it takes only when nobody else has for a while,
    so that what cannot be done anywhere is told.
    """

    def __init__(self, worker: str, places: Iterable[str]) -> None:
        self._worker = worker
        self._due_at = t.effects.c.not_before + case((_at(places), 0.0), else_=OTHERS_SECONDS)

    def claim(self, conn: Connection, now: float) -> list[Claimed]:
        """Everything that is due and free, from now on held by this worker."""
        c = t.effects.c
        due = select(c.id, c.kind, c.tries, c.machine).where(
            c.done.is_(False), self._due_at <= now, _free(now), _first()
        )
        rows = [row for row in conn.execute(due).all() if self._take(conn, row.id, now)]
        machines = repository.load_machines(conn, {row.machine for row in rows})
        return [_claimed(row, machines[row.machine], now) for row in rows]

    def done(self, conn: Connection, effect: Claimed) -> None:
        self._put_down(conn, effect, {"done": True, "error": None})

    def later(self, conn: Connection, effect: Claimed, why: str, not_before: float) -> None:
        self._put_down(conn, effect, {"error": why, "not_before": not_before})

    def next_due(self, conn: Connection) -> float | None:
        """When the next effect may be tried: after its wait, its claim and all before it of its machine."""
        c = t.effects.c
        query = select(self._due_at.label("due_at"), c.claimed_until).where(c.done.is_(False), _first())
        rows = conn.execute(query).all()
        return min((max(row.due_at, row.claimed_until or 0.0) for row in rows), default=None)

    def _take(self, conn: Connection, effect: int, now: float) -> bool:
        """Whether the claim is ours: of two workers that saw it free one gets it."""
        c = t.effects.c
        hold = {"claimed_by": self._worker, "claimed_until": now + CLAIM_SECONDS, "tries": c.tries + 1}
        free = update(t.effects).where(c.id == effect, c.done.is_(False), _free(now))
        return conn.execute(free.values(hold)).rowcount == 1

    def _put_down(self, conn: Connection, effect: Claimed, values: Mapping[str, object]) -> None:
        """Ends the claim, unless another worker has taken it over meanwhile."""
        c = t.effects.c
        held = (c.claimed_by == self._worker, c.claimed_until == effect.until)
        mine = update(t.effects).where(c.id == effect.id, *held)
        conn.execute(mine.values({**values, "claimed_by": None, "claimed_until": None}))


def _claimed(row: Row[int, str, int, str], machine: Machine, now: float) -> Claimed:
    return Claimed(row.id, EffectKind(row.kind), row.tries, machine, now + CLAIM_SECONDS)


def _free(now: float) -> ColumnElement[bool]:
    return or_(t.effects.c.claimed_until.is_(None), t.effects.c.claimed_until <= now)


def _first() -> ColumnElement[bool]:
    """No older effect of its machine is open."""
    older = t.effects.alias("older")
    return ~exists().where(
        and_(older.c.machine == t.effects.c.machine, older.c.done.is_(False), older.c.id < t.effects.c.id)
    )


def _at(places: Iterable[str]) -> ColumnElement[bool]:
    machine = t.machines.c
    return exists().where(machine.id == t.effects.c.machine, machine.backend.in_(sorted(places)))
