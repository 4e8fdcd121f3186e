"""The hold after a restore, while the database may be older than the world: nothing is destroyed.

A restored database knows the world as it was when the backup was made. Until the operator confirms it:

- effects on machines from before the restore are kept and not performed;
- the janitor and the pools end none of these machines;
- their hosts get no documents, and unknown runners are asked to come back later instead of to end;
- hooks get no messages;
- no job is placed while such a machine may be alive, or before two scans of each backend found only known machines.

Machines made after the restore are known for certain and not affected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, Select, delete, func, or_, select, update

from crucible.control.db import meta
from crucible.control.db import schema as t
from crucible.control.jobs.views import iso
from crucible.core.errors import Trouble
from crucible.core.lifecycle import EffectKind, MachineState
from crucible.core.views.server import ConfirmedView, RestoredView

RESTORED_AT = "restored_at"
BACKUP_AT = "restored_backup_at"
CONFIRMED_AT = "restore_confirmed_at"
SCAN = "restored_look:"
GAP = "restored_gap:"

WHY = (
    "The database was restored from a backup. Until that is confirmed, nothing from before it is ended, and jobs wait "
    "until no machine from before is alive and every backend has shown, twice, that it holds only known machines."
)
FIX = "Compare `crucible machines orphans` with what should run, then `crucible db confirm`."
CHECK_AGAIN = 5.0
"""Seconds until an effect that is held back is checked again."""
SCAN_INTERVAL = 5.0
"""The least number of seconds between two scans of a backend for the second to confirm the first."""
MOMENT = 0.001
"""A restore is at least this much later than the newest machine in the database, whatever clocks say."""


class RestoreUnconfirmed(Trouble):
    """The agent is to come back later: an answer now could end something that the backup does not know."""

    code = "restore_unconfirmed"


@dataclass(frozen=True)
class ConfirmResult:
    """`effects` were held back and are due now. `restored_at` is None if there was nothing to confirm."""

    restored_at: float | None
    effects: int = 0

    @property
    def view(self) -> ConfirmedView:
        return ConfirmedView(
            confirmed=self.restored_at is not None, restored_at=iso(self.restored_at), effects=self.effects
        )


def unconfirmed_since(conn: Connection) -> float | None:
    """Return when the database was restored, while that is not confirmed; else None."""
    value = meta.get(conn, RESTORED_AT)
    return None if value is None else float(value)


def is_held(conn: Connection) -> bool:
    """Return whether a restore is unconfirmed, so that nothing may be destroyed."""
    return unconfirmed_since(conn) is not None


def may_launch(conn: Connection, backends: Iterable[str]) -> bool:
    """Return whether jobs may be placed: what may still run from before the restore could be those very jobs."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return True
    if conn.execute(
        _machines_before(restored_at).where(t.machines.c.state != MachineState.GONE.value).limit(1)
    ).first():
        return False
    return all(_read_scan(conn, backend).clear for backend in backends)


def status(conn: Connection) -> RestoredView | None:
    """Return what users should see of an unconfirmed restore, or None."""
    restored_at, backup_at = unconfirmed_since(conn), meta.get(conn, BACKUP_AT)
    if restored_at is None:
        return None
    made = None if backup_at is None else float(backup_at)
    return RestoredView(restored_at=restored_at, backup_at=made, why=WHY, fix=FIX)


def refuse_while_held(conn: Connection) -> None:
    """Raise RestoreUnconfirmed while a restore is unconfirmed. Call it before telling an agent to end."""
    if is_held(conn):
        raise RestoreUnconfirmed("The server cannot be certain about this yet.", why=WHY, fix=FIX)


def refuse_for_old_machine(conn: Connection, machine: str) -> None:
    """Raise RestoreUnconfirmed for a host whose machine is unknown or from before an unconfirmed restore."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return
    made = conn.execute(select(t.machines.c.created_at).where(t.machines.c.id == machine)).scalar()
    if made is None or made < restored_at:
        raise RestoreUnconfirmed("The server cannot be certain about this yet.", why=WHY, fix=FIX)


def hold_back(conn: Connection, now: float) -> None:
    """Postpone every effect on machines from before an unconfirmed restore, with the reason."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return
    c = t.effects.c
    free = or_(c.claimed_until.is_(None), c.claimed_until <= now)
    due = (c.done.is_(False), c.not_before <= now, free, c.machine.in_(_machines_before(restored_at)))
    conn.execute(update(t.effects).where(*due).values(not_before=now + CHECK_AGAIN, error=WHY))


def record_scan(conn: Connection, backend: str, now: float, *, strangers: bool, settle_window: float = 0.0) -> None:
    """Store whether the backend holds machines with our tag that we do not know. Does nothing without a hold.

    It is clear once two scans found nothing unknown, far enough apart for a list that lags to have caught up.
    """
    if not is_held(conn):
        return
    if strangers:
        return meta.drop(conn, f"{SCAN}{backend}")
    known = _read_scan(conn, backend)
    since = now if known.since is None or now < known.since else known.since
    clear = known.clear or now - since >= max(settle_window, SCAN_INTERVAL)
    meta.put(conn, f"{SCAN}{backend}", json.dumps({"since": since, "clear": clear}))


def bridge_gap(conn: Connection, attempt: str, rank: int, first: int) -> bool | None:
    """Decide about a batch that begins with message `first`, after numbers that this database does not have.

    None: they are missing; the database was never restored while this rank ran. False: ask the runner for everything
    it still has. True: `first` came twice, so nothing before it is left, and the rank is counted from there.
    """
    key = f"{GAP}{attempt}:{rank}"
    known = meta.get(conn, key)
    if known is None:
        return None
    if known != str(first):
        meta.put(conn, key, str(first))
        return False
    c = t.slots.c
    conn.execute(update(t.slots).where(c.attempt == attempt, c.rank == rank).values(acked=first - 1))
    return True


def may_have_missed(conn: Connection, attempt: str, rank: int) -> bool:
    """Return whether the database was restored while this rank ran, so that anything of it may be missing."""
    return meta.get(conn, f"{GAP}{attempt}:{rank}") is not None


def mark_restored(conn: Connection, now: float, backup_at: float) -> None:
    """Mark a database as just restored, and drop its claims and duties, which are no longer true.

    Everything in it counts as from before, even if clocks disagree. A launch that had not been attempted may have been
    since, so it counts as attempted: it is looked for before it is sent.
    """
    meta.drop(conn, CONFIRMED_AT, *meta.with_prefix(conn, SCAN), *meta.with_prefix(conn, GAP))
    newest = conn.execute(select(func.max(t.machines.c.created_at))).scalar() or 0.0
    meta.put(conn, RESTORED_AT, repr(max(now, backup_at, newest + MOMENT)))
    meta.put(conn, BACKUP_AT, repr(backup_at))
    conn.execute(delete(t.roles))
    for table in (t.effects, t.jobs):
        conn.execute(update(table).values(claimed_by=None, claimed_until=None))
    c = t.effects.c
    untried = (c.done.is_(False), c.kind == EffectKind.LAUNCH.value, c.tries == 0)
    conn.execute(update(t.effects).where(*untried).values(tries=1))
    open_slots = select(t.slots.c.attempt, t.slots.c.rank).where(t.slots.c.ended.is_(False))
    for row in conn.execute(open_slots).all():
        meta.put(conn, f"{GAP}{row.attempt}:{row.rank}", "")


def confirm(conn: Connection, now: float) -> ConfirmResult:
    """Allow destruction and launches again; effects that were held back become due at once."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return ConfirmResult(None)
    meta.drop(conn, RESTORED_AT, *meta.with_prefix(conn, SCAN))
    meta.put(conn, CONFIRMED_AT, repr(now))
    c = t.effects.c
    waiting = update(t.effects).where(c.done.is_(False), c.error == WHY)
    return ConfirmResult(restored_at, conn.execute(waiting.values(not_before=now, error=None)).rowcount)


def _machines_before(restored_at: float) -> Select[str]:
    return select(t.machines.c.id).where(t.machines.c.created_at < restored_at)


@dataclass(frozen=True)
class _Scan:
    """`since`: the first of the scans in a row that found nothing unknown. `clear`: there were enough of them."""

    since: float | None = None
    clear: bool = False


def _read_scan(conn: Connection, backend: str) -> _Scan:
    noted = meta.get(conn, f"{SCAN}{backend}")
    return _Scan() if noted is None else _Scan(**json.loads(noted))
