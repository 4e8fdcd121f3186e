"""The cloud's state: one SQLite file that survives `kill -9`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from .catalogue import Item, Market
from .records import ALIVE, Cause, Instance, ListedInstance, OnExit, Segment, State

_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS instances (
    n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, zone TEXT NOT NULL, type TEXT NOT NULL,
    market TEXT NOT NULL, tags TEXT NOT NULL, created_at REAL NOT NULL, boot_at REAL NOT NULL,
    wish TEXT NOT NULL, secret TEXT UNIQUE NOT NULL, token TEXT NOT NULL, on_exit TEXT NOT NULL,
    state TEXT NOT NULL, cause TEXT NOT NULL, running_at REAL, ends_at REAL, notice_at REAL, die_at REAL,
    off_at REAL, ended_at REAL, pid INTEGER, started TEXT NOT NULL, due REAL
);
CREATE INDEX IF NOT EXISTS instances_due ON instances (due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS instances_token ON instances (token);
CREATE TABLE IF NOT EXISTS changes (
    n INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT NOT NULL, at REAL NOT NULL, state TEXT NOT NULL,
    cause TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS changes_instance ON changes (instance, n);
CREATE TABLE IF NOT EXISTS segments (
    n INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    rate INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS segments_instance ON segments (instance, n);
CREATE INDEX IF NOT EXISTS segments_open ON segments (instance) WHERE until IS NULL;
CREATE TABLE IF NOT EXISTS spot_rates (
    zone TEXT NOT NULL, type TEXT NOT NULL, rate INTEGER NOT NULL, held INTEGER NOT NULL,
    PRIMARY KEY (zone, type)
);
CREATE TABLE IF NOT EXISTS stock (
    zone TEXT NOT NULL, type TEXT NOT NULL, market TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (zone, type, market)
);
CREATE TABLE IF NOT EXISTS quotas (region TEXT PRIMARY KEY, vcpus INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS outages (zone TEXT PRIMARY KEY);
"""
_FIELDS = tuple(field.name for field in fields(Instance) if field.name != "n")
_COLUMNS = ", ".join(_FIELDS)
_ALIVE = ", ".join(f"'{state}'" for state in ALIVE)


class Store:
    """The database. Not thread-safe: it is used only under the world's lock."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # Notes

    def note(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return row["value"] if row else None

    def write_note(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    def forget(self) -> None:
        """Delete everything except the cloud's keys, port and time."""
        for table in ("instances", "changes", "segments", "spot_rates", "stock", "quotas", "outages"):
            self._db.execute(f"DELETE FROM {table}")  # noqa: S608
        self._db.execute("DELETE FROM notes WHERE name NOT IN ('key', 'admin_key', 'port', 'anchor')")

    # Instances

    def add(self, instance: Instance) -> None:
        marks = ", ".join("?" * (len(_FIELDS) + 1))
        self._db.execute(f"INSERT INTO instances ({_COLUMNS}, due) VALUES ({marks})", _values(instance))  # noqa: S608
        self._change(instance, instance.created_at)

    def save(self, instance: Instance, changed_at: float | None = None) -> None:
        """Save an instance. `changed_at`: when its state changed; a list with a lag shows the earlier one."""
        settings = ", ".join(f"{name} = ?" for name in (*_FIELDS, "due"))
        self._db.execute(
            f"UPDATE instances SET {settings} WHERE id = ?",  # noqa: S608
            (*_values(instance), instance.id),
        )
        if changed_at is not None:
            self._change(instance, changed_at)

    def get(self, id: str) -> Instance | None:
        return self._one("id = ?", id)

    def by_secret(self, secret: str) -> Instance | None:
        return self._one("secret = ?", secret)

    def by_token(self, token: str) -> Instance | None:
        """Return the first instance that was created with this token, or None."""
        return self._one("token = ? ORDER BY n LIMIT 1", token)

    def due(self, now: float) -> Instance | None:
        """Return the instance with the earliest step due by now, or None."""
        return self._one("due <= ? ORDER BY due, n LIMIT 1", now)

    def next_due(self) -> float | None:
        row = self._db.execute("SELECT min(due) AS due FROM instances WHERE due IS NOT NULL").fetchone()
        return None if row["due"] is None else float(row["due"])

    def alive(self) -> list[Instance]:
        return self._many(f"state IN ({_ALIVE}) ORDER BY n")

    def all(self) -> list[Instance]:
        return self._many("1 ORDER BY n")

    def list_instances(self, at: float, ended_after: float, tags: Mapping[str, Sequence[str]]) -> list[ListedInstance]:
        """Return the instances with one of these values of each tag, in their state at a time.

        Those that ended before `ended_after` are left out.
        """
        query = (
            "SELECT i.*, c.state AS shown_state, c.cause AS shown_cause FROM instances i JOIN changes c"
            " ON c.n = (SELECT max(n) FROM changes WHERE instance = i.id AND at <= ?)"
            " WHERE (i.ended_at IS NULL OR i.ended_at > ?)"
        )
        values: list[object] = [at, ended_after]
        for tag, wanted in tags.items():
            marks = ", ".join("?" * len(wanted))
            query += f" AND EXISTS (SELECT 1 FROM json_each(i.tags) WHERE key = ? AND value IN ({marks}))"  # noqa: S608
            values += [tag, *wanted]
        rows = self._db.execute(f"{query} ORDER BY i.n", values)
        return [ListedInstance(_instance(row), State(row["shown_state"]), Cause(row["shown_cause"])) for row in rows]

    def _one(self, where: str, *values: object) -> Instance | None:
        row = self._db.execute(f"SELECT * FROM instances WHERE {where}", values).fetchone()  # noqa: S608
        return _instance(row) if row else None

    def _many(self, where: str) -> list[Instance]:
        rows = self._db.execute(f"SELECT * FROM instances WHERE {where}")  # noqa: S608
        return [_instance(row) for row in rows]

    def _change(self, instance: Instance, at: float) -> None:
        self._db.execute(
            "INSERT INTO changes (instance, at, state, cause) VALUES (?, ?, ?, ?)",
            (instance.id, at, instance.state, instance.cause),
        )

    # Metering

    def segments(self, id: str) -> list[Segment]:
        rows = self._db.execute("SELECT since, until, rate FROM segments WHERE instance = ? ORDER BY n", (id,))
        return [Segment(row["since"], row["until"], row["rate"]) for row in rows]

    def open_rate(self, id: str) -> int | None:
        """Return the current rate of an instance, or None if it is not billed."""
        row = self._db.execute("SELECT rate FROM segments WHERE instance = ? AND until IS NULL", (id,)).fetchone()
        return row["rate"] if row else None

    def open_segment(self, id: str, since: int, rate: int) -> None:
        """Begin a segment at a new rate. Drops the last one if it lasted no full second."""
        self._db.execute("DELETE FROM segments WHERE instance = ? AND until IS NULL AND since >= ?", (id, since))
        self.close_segment(id, since)
        self._db.execute("INSERT INTO segments (instance, since, rate) VALUES (?, ?, ?)", (id, since, rate))

    def close_segment(self, id: str, until: int) -> None:
        self._db.execute("UPDATE segments SET until = ? WHERE instance = ? AND until IS NULL", (until, id))

    # Market

    def spot_rates(self) -> dict[tuple[str, str], tuple[int, bool]]:
        """Return, by zone and type, the rate and whether it is fixed."""
        rows = self._db.execute("SELECT * FROM spot_rates")
        return {(row["zone"], row["type"]): (row["rate"], bool(row["held"])) for row in rows}

    def write_spot_rates(self, rates: Mapping[tuple[str, str], tuple[int, bool]]) -> None:
        values = [(zone, type, rate, held) for (zone, type), (rate, held) in rates.items()]
        self._db.executemany("INSERT OR REPLACE INTO spot_rates VALUES (?, ?, ?, ?)", values)

    def stock(self, item: Item) -> int | None:
        row = self._db.execute(
            "SELECT count FROM stock WHERE zone = ? AND type = ? AND market = ?",
            (item.zone, item.type, item.market),
        ).fetchone()
        return row["count"] if row else None

    def write_stock(self, items: Sequence[Item], count: int) -> None:
        values = [(item.zone, item.type, item.market, count) for item in items]
        self._db.executemany("INSERT OR REPLACE INTO stock VALUES (?, ?, ?, ?)", values)

    def quota(self, region: str) -> int | None:
        row = self._db.execute("SELECT vcpus FROM quotas WHERE region = ?", (region,)).fetchone()
        return row["vcpus"] if row else None

    def write_quota(self, region: str, vcpus: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO quotas VALUES (?, ?)", (region, vcpus))

    def outages(self) -> set[str]:
        return {row["zone"] for row in self._db.execute("SELECT zone FROM outages")}

    def write_outage(self, zone: str, out: bool) -> None:
        verb = "INSERT OR REPLACE INTO outages VALUES (?)" if out else "DELETE FROM outages WHERE zone = ?"
        self._db.execute(verb, (zone,))


def _values(instance: Instance) -> tuple[object, ...]:
    following = instance.next
    values = {name: getattr(instance, name) for name in _FIELDS} | {"tags": json.dumps(dict(instance.tags))}
    return (*values.values(), following[0] if following else None)


def _instance(row: sqlite3.Row) -> Instance:
    values = {name: row[name] for name in (*_FIELDS, "n")}
    return Instance(
        **{
            **values,
            "tags": json.loads(row["tags"]),
            "market": Market(row["market"]),
            "on_exit": OnExit(row["on_exit"]),
            "state": State(row["state"]),
            "cause": Cause(row["cause"]),
        }
    )
