"""Roles: duties that one process at a time performs, each holding with an epoch.

A holder renews before its time is up. What it writes is conditional on its epoch, so a holder that was paused
for too long changes nothing after another has taken over.
"""

from __future__ import annotations

import enum

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from crucible.control.db import schema as t

HOLD_SECONDS = 30.0


class Duty(enum.StrEnum):
    SCHEDULER = "scheduler"
    POLLER = "poller"
    JANITOR = "janitor"


def take(conn: Connection, duty: str, holder: str, now: float) -> int | None:
    """The epoch under which `holder` has the duty from now, or None while another has it."""
    c = t.roles.c
    row = conn.execute(select(t.roles).where(c.name == duty)).first()
    if row is None:
        return _first(conn, duty, holder, now)
    if row.holder != holder and row.until > now:
        return None
    epoch = int(row.epoch) if row.holder == holder else int(row.epoch) + 1
    done = conn.execute(
        update(t.roles)
        .where(c.name == duty, c.epoch == row.epoch, c.holder == row.holder)
        .values(holder=holder, epoch=epoch, until=now + HOLD_SECONDS)
    )
    return epoch if done.rowcount == 1 else None


class Duties:
    """The duties that this process has, as far as it knows; `holds` asks the database."""

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._epochs: dict[Duty, int] = {}

    def renew(self, conn: Connection, now: float) -> frozenset[Duty]:
        """Takes or keeps every duty that is free; those held now."""
        taken = {duty: take(conn, duty, self._holder, now) for duty in Duty}
        self._epochs = {duty: epoch for duty, epoch in taken.items() if epoch is not None}
        return frozenset(self._epochs)

    def has(self, duty: Duty) -> bool:
        return duty in self._epochs

    def holds(self, conn: Connection, duty: Duty) -> bool:
        """Whether the duty is still held under the epoch it was taken with: what a holder writes depends on it."""
        epoch = self._epochs.get(duty)
        if epoch is None:
            return False
        c = t.roles.c
        query = select(c.epoch).where(c.name == duty, c.holder == self._holder, c.epoch == epoch)
        return conn.execute(query).first() is not None


def release(conn: Connection, holder: str) -> None:
    """Gives up every duty at once, for a clean stop."""
    conn.execute(update(t.roles).where(t.roles.c.holder == holder).values(until=0.0))


def _first(conn: Connection, duty: str, holder: str, now: float) -> int | None:
    try:
        with conn.begin_nested():
            conn.execute(insert(t.roles).values(name=duty, holder=holder, epoch=1, until=now + HOLD_SECONDS))
    except IntegrityError:
        return None
    return 1
