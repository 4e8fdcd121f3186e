"""After a restore: what the database says may be older than what is out there, so nothing is destroyed.

A restored database knows the world as it was when the backup was made. Until a person confirms it:

- effects at machines from before the restore are kept and not performed;
- the janitor and the pools end nothing of them;
- their hosts get no documents, and runners that we do not know are told to come back instead of to end;
- hooks are told nothing;
- no job is placed while such a machine may live, or a place has not yet shown, twice, that all it holds is known.

Machines made after the restore are known for certain and live as always. Functions of a Connection, for use
inside `db.write` and `db.read`.
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
    "The database was restored from a backup. Until that is confirmed nothing from before it is ended, and jobs wait "
    "until no machine from before lives and every place has shown, twice, that all it holds is known."
)
FIX = "Compare `crucible machines orphans` with what should run, then `crucible db confirm`."
CHECK_AGAIN = 5.0
"""Seconds until an effect that is held back is looked at again."""
SCAN_INTERVAL = 5.0
"""Seconds between two looks at a place, at least, for the second to confirm the first."""
MOMENT = 0.001
"""So much later than the newest machine it knows a database was restored, whatever clocks say."""


class RestoreUnconfirmed(Trouble):
    """Asked to come back later: the answer could end something that the backup did not know of."""

    code = "restore_unconfirmed"


@dataclass(frozen=True)
class ConfirmResult:
    """`effects` were held back and are due now. `restored_at` is None when there was nothing to confirm."""

    restored_at: float | None
    effects: int = 0

    @property
    def view(self) -> ConfirmedView:
        return ConfirmedView(
            confirmed=self.restored_at is not None, restored_at=iso(self.restored_at), effects=self.effects
        )


def unconfirmed_since(conn: Connection) -> float | None:
    """When the database was restored, while that is not confirmed; else None."""
    value = meta.get(conn, RESTORED_AT)
    return None if value is None else float(value)


def is_held(conn: Connection) -> bool:
    """Whether destruction is off."""
    return unconfirmed_since(conn) is not None


def may_launch(conn: Connection, places: Iterable[str]) -> bool:
    """Whether jobs may be placed: what may still run from before the restore could be those very jobs."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return True
    if conn.execute(
        _machines_before(restored_at).where(t.machines.c.state != MachineState.GONE.value).limit(1)
    ).first():
        return False
    return all(_read_scan(conn, place).clear for place in places)


def status(conn: Connection) -> RestoredView | None:
    """What people should see of a restore that is not confirmed; None when there is none."""
    restored_at, backup_at = unconfirmed_since(conn), meta.get(conn, BACKUP_AT)
    if restored_at is None:
        return None
    made = None if backup_at is None else float(backup_at)
    return RestoredView(restored_at=restored_at, backup_at=made, why=WHY, fix=FIX)


def refuse_while_held(conn: Connection) -> None:
    """Called before an agent is told that it is not wanted: raises RestoreUnconfirmed while that is uncertain."""
    if is_held(conn):
        raise RestoreUnconfirmed("This is not known for certain.", why=WHY, fix=FIX)


def refuse_for_old_machine(conn: Connection, machine: str) -> None:
    """Raises RestoreUnconfirmed for a host whose machine may know better than this database."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return
    made = conn.execute(select(t.machines.c.created_at).where(t.machines.c.id == machine)).scalar()
    if made is None or made < restored_at:
        raise RestoreUnconfirmed("This is not known for certain.", why=WHY, fix=FIX)


def hold_back(conn: Connection, now: float) -> None:
    """Puts off every effect at machines from before the restore, with the reason, for as long as it is held."""
    restored_at = unconfirmed_since(conn)
    if restored_at is None:
        return
    c = t.effects.c
    free = or_(c.claimed_until.is_(None), c.claimed_until <= now)
    due = (c.done.is_(False), c.not_before <= now, free, c.machine.in_(_machines_before(restored_at)))
    conn.execute(update(t.effects).where(*due).values(not_before=now + CHECK_AGAIN, error=WHY))


def record_scan(conn: Connection, place: str, now: float, *, strangers: bool, settle_window: float = 0.0) -> None:
    """Notes what `place` holds with our tag. Only matters while held.

    It is clear once two looks, so far apart that a list that lags has caught up, found nothing unknown.
    """
    if not is_held(conn):
        return
    if strangers:
        return meta.drop(conn, f"{SCAN}{place}")
    known = _read_scan(conn, place)
    since = now if known.since is None or now < known.since else known.since
    clear = known.clear or now - since >= max(settle_window, SCAN_INTERVAL)
    meta.put(conn, f"{SCAN}{place}", json.dumps({"since": since, "clear": clear}))


def bridge_gap(conn: Connection, attempt: str, rank: int, first: int) -> bool | None:
    """A batch begins with `first`, after numbers that this database has not: may they be passed over?

    None: no, it was never restored while this rank ran. False: ask the runner for everything it still has.
    True: `first` came twice, so nothing before it is left, and the rank is counted from there.
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


def mark_restored(conn: Connection, now: float, backup_at: float) -> None:
    """Makes a database that was just put back a restored one. Nothing it held in claims or duties is true.

    All that it knows is from before, also where the clocks of then and now disagree. A launch that had not been
    tried may have been since: it is looked for before it is sent.
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
    """Destruction and launches are allowed again; what was held back is due at once."""
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
    """`since`: when a place first held nothing unknown, if it has not since."""

    since: float | None = None
    clear: bool = False


def _read_scan(conn: Connection, place: str) -> _Scan:
    noted = meta.get(conn, f"{SCAN}{place}")
    return _Scan() if noted is None else _Scan(**json.loads(noted))
