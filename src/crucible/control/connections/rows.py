"""Connections as rows. Their secrets are in the vault, so nothing here sees one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, exists, select, update

from crucible.backends.base import MachineRef
from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.core.lifecycle import MachineState

_c, _m, _s = t.connections.c, t.machines.c, t.slots.c
_COLUMNS = ("settings", "secrets", "version", "closing_at", "updated_at", "updated_by")
_ALL = Statement(select(t.connections).order_by(_c.name))
_ONE = Statement(select(t.connections).where(_c.name == bindparam("called")))
_ADD = Statement(insert_row(t.connections, ["name", "created_at", *_COLUMNS]))
_CHANGE = Statement(
    update(t.connections).where(_c.name == bindparam("called")).values({name: bindparam(name) for name in _COLUMNS})
)
_CLOSE = Statement(
    update(t.connections)
    .where(_c.name == bindparam("called"), _c.closing_at.is_(None))
    .values(closing_at=bindparam("at"))
)
_REMOVE = Statement(delete(t.connections).where(_c.name == bindparam("called"), _c.closing_at.is_not(None)))
_ALIVE = Statement(
    select(_m.id).where(_m.backend == bindparam("backend"), _m.state != MachineState.GONE.value).order_by(_m.id)
)
_ALIVE_REFS = Statement(
    select(_m.id, _m.native_id, _m.region)
    .where(_m.backend == bindparam("backend"), _m.state != MachineState.GONE.value, _m.native_id.is_not(None))
    .order_by(_m.id)
)
_UNFINISHED = Statement(
    select(_m.id)
    .where(
        _m.backend == bindparam("backend"),
        exists().where(_s.machine == _m.id, _s.ended.is_(False)),
    )
    .limit(1)
)
_UNBILLED = Statement(
    select(_m.id)
    .where(_m.backend == bindparam("backend"), _m.metered.is_(False), _m.gone_at > bindparam("since"))
    .limit(1)
)


@dataclass(frozen=True)
class StoredConnection:
    """A connection. `closing_at`: when its end was requested; it ends once its machines are gone."""

    name: str
    settings: Mapping[str, object] = field(repr=False)
    secrets: tuple[str, ...]
    version: int
    closing_at: float | None
    updated_at: float
    updated_by: str

    @property
    def stamp(self) -> tuple[int, float]:
        """Return what differs whenever the settings differ, also from those of an earlier connection."""
        return self.version, self.updated_at


def list_connections(conn: Connection) -> list[StoredConnection]:
    return [_parse(row) for row in _ALL.all(conn)]


def find(conn: Connection, name: str) -> StoredConnection | None:
    row = _ONE.first(conn, called=name)
    return None if row is None else _parse(row)


def put(
    conn: Connection, name: str, settings: Mapping[str, object], secrets: Collection[str], now: float, by: str
) -> None:
    """Add the connection, or replace its settings; it is not being closed any more."""
    known = find(conn, name)
    values = {
        "settings": json.dumps(dict(settings), sort_keys=True),
        "secrets": json.dumps(sorted(secrets)),
        "version": 1 if known is None else known.version + 1,
        "closing_at": None,
        "updated_at": now,
        "updated_by": by,
    }
    if known is None:
        _ADD.run(conn, name=name, created_at=now, **values)
    else:
        _CHANGE.run(conn, called=name, **values)


def close(conn: Connection, name: str, now: float) -> bool:
    """Begin to end the connection; return whether that is new."""
    return _CLOSE.run(conn, called=name, at=now) > 0


def remove_closed(conn: Connection, name: str) -> bool:
    """Delete the connection unless it was connected again meanwhile; return whether it was deleted."""
    return _REMOVE.run(conn, called=name) > 0


def alive_machines(conn: Connection, backend: str) -> list[str]:
    """Return the machines of the backend that are not gone."""
    return _ALIVE.column(conn, backend=backend)


def alive_refs(conn: Connection, backend: str) -> list[MachineRef]:
    """Return the machines of the backend that are not gone and that it has named."""
    found = _ALIVE_REFS.all(conn, backend=backend)
    return [MachineRef(backend, row["id"], row["native_id"], row["region"]) for row in found]


def is_unfinished(conn: Connection, backend: str, billed_since: float | None) -> bool:
    """Return whether a machine of the backend is needed or an attempt there has not ended.

    `billed_since`: machines that ended since then count too until their provider's final bill was read.
    """
    if _ALIVE.value(conn, backend=backend) is not None or _UNFINISHED.value(conn, backend=backend) is not None:
        return True
    return billed_since is not None and _UNBILLED.value(conn, backend=backend, since=billed_since) is not None


def _parse(row: Row) -> StoredConnection:
    return StoredConnection(
        row["name"],
        json.loads(row["settings"]),
        tuple(json.loads(row["secrets"])),
        row["version"],
        row["closing_at"],
        row["updated_at"],
        row["updated_by"],
    )
