"""The slots of attempts: a runner has one, and its secret opens nothing but that, until the slot has ended."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.upkeep import restore_hold
from crucible.core.errors import CrucibleError

_SLOT = Statement(
    select(t.slots.c.acked, t.slots.c.ended, t.attempts.c.job)
    .join(t.attempts, t.attempts.c.id == t.slots.c.attempt)
    .where(t.slots.c.attempt == bindparam("attempt"), t.slots.c.rank == bindparam("rank"))
)


class AttemptGone(CrucibleError):
    """The attempt is over, or was never ours: its runner ends itself."""

    code = "attempt_gone"
    http_status = 410


@dataclass(frozen=True)
class RunnerSlot:
    """`acked` is the highest number of its messages that is stored."""

    job: str
    acked: int
    ended: bool

    def require_open(self) -> None:
        """Raise AttemptGone once the runner has ended: it reads and stores nothing any more."""
        if self.ended:
            raise attempt_over()


def load_slot(conn: Connection, attempt: str, rank: int) -> RunnerSlot:
    """Return the slot. Raises AttemptGone if the attempt has none of this rank."""
    row = _SLOT.first(conn, attempt=attempt, rank=rank)
    if row is None:
        restore_hold.refuse_while_held(conn)
        raise AttemptGone("There is no such attempt, or no such rank of it.", fix="The runner ends itself.")
    return RunnerSlot(row["job"], row["acked"], bool(row["ended"]))


def open_slot(conn: Connection, attempt: str, rank: int) -> RunnerSlot:
    """Return the slot of a runner that has not ended. Raises AttemptGone for any other."""
    slot = load_slot(conn, attempt, rank)
    slot.require_open()
    return slot


def attempt_over() -> AttemptGone:
    return AttemptGone(
        "The attempt has ended.",
        why="Its secret ended with it: nothing more is stored for it or handed to it.",
        fix="The runner ends itself.",
    )
