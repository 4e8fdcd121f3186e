"""Objects that attempts have stored and not announced: bounded while the attempt is live, removed after its end.

A row is added before the store is asked to take the object, and deleted when its message comes, in the transaction that
records the object. Nothing of an ended attempt is announced, so what is left then is garbage.
Functions of a Connection.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, bindparam, delete, func, select, update

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.objects import gc_marks
from crucible.control.objects.pending_objects import PendingObject
from crucible.control.objects.uploads import put_deadline
from crucible.core.compute.resources import GiB, format_memory
from crucible.core.lifecycle import AttemptState
from crucible.storage import StoreFull

MOST_BYTES = 4 * GiB
"""What an attempt may have stored and not announced, of each kind, before it may store more of that kind.

An object may be larger: an agent announces each right after it is stored. A batch of messages announces 1 GiB of
output at most.
"""
MOST_OBJECTS = 10_000
"""The same as a number of objects: an agent stores no more files than that."""
SETTLE_SECONDS = 3600.0
"""How long after its deadline a write may still reach the store."""
REMOVED_AT_ONCE = 1000


class UploadKind(StrEnum):
    LOG = "log"
    ARTIFACT = "artifact"
    CHECKPOINT = "checkpoint"


class Unannounced(StoreFull):
    """The attempt is to announce what it has stored before it stores more. Agents come back later."""

    code = "unannounced"


@dataclass(frozen=True)
class Upload:
    """`path` is that of an artifact, else empty."""

    attempt: str
    rank: int
    kind: UploadKind
    key: str
    path: str = ""


_u = t.uploads.c
_THIS = (_u.attempt == bindparam("its_attempt"), _u.key == bindparam("its_key"), _u.path == bindparam("its_path"))
_HELD = Statement(
    select(func.count().label("count"), func.coalesce(func.sum(_u.size), 0).label("bytes")).where(
        _u.attempt == bindparam("attempt"), _u.kind == bindparam("kind"), _u.key != bindparam("key")
    )
)
_AGAIN = Statement(update(t.uploads).where(*_THIS).values(size=bindparam("size"), stored_by=bindparam("stored_by")))
_ADD = Statement(insert_row(t.uploads, ["attempt", "key", "path", "rank", "kind", "size", "stored_by"]))
_DROP = Statement(delete(t.uploads).where(*_THIS))
_DROP_KEYS = Statement(delete(t.uploads).where(_u.key.in_(bindparam("keys", expanding=True))))
_GARBAGE = Statement(
    select(_u.attempt, _u.key, _u.path, _u.rank, _u.kind, t.attempts.c.job)
    .join(t.attempts, t.attempts.c.id == _u.attempt)
    .where(t.attempts.c.state == AttemptState.ENDED.value, _u.stored_by <= bindparam("now"))
    .order_by(_u.attempt, _u.key, _u.path)
    .limit(REMOVED_AT_ONCE)
)
_a, _c = t.artifacts.c, t.checkpoints.c
_OUTPUT = Statement(
    select(_a.path)
    .where(_a.attempt == bindparam("attempt"), _a.sha256 == bindparam("sha256"), _a.hashed.is_(True))
    .limit(1)
)
_CHECKPOINT = Statement(
    select(_c.id).where(_c.job == bindparam("job"), _c.sha256 == bindparam("sha256"), _c.pruned_at.is_(None)).limit(1)
)


def check_room(conn: Connection, upload: Upload) -> None:
    """Raise Unannounced if the attempt has stored too much of this kind that it has not announced."""
    held = _HELD.first(conn, attempt=upload.attempt, kind=upload.kind.value, key=upload.key)
    assert held is not None, "a sum has a row"
    if held["bytes"] >= MOST_BYTES or held["count"] >= MOST_OBJECTS:
        raise Unannounced(
            "The attempt has stored too much that it has not announced.",
            why=f"Of each kind, {MOST_OBJECTS} objects and {format_memory(MOST_BYTES)} may wait for their messages.",
            fix="The runner sends its messages, then stores this again.",
        )


def add(conn: Connection, upload: Upload, size: int, now: float) -> None:
    """Add an object before the store is asked to take it. The same again is fine."""
    stored_by = now + put_deadline(size) + SETTLE_SECONDS
    this = {"its_attempt": upload.attempt, "its_key": upload.key, "its_path": upload.path}
    if _AGAIN.run(conn, **this, size=size, stored_by=stored_by) == 0:
        row = {"attempt": upload.attempt, "key": upload.key, "path": upload.path, "rank": upload.rank}
        _ADD.run(conn, **row, kind=upload.kind.value, size=size, stored_by=stored_by)


def announce(conn: Connection, attempt: str, key: str, path: str = "") -> bool:
    """Drop an object that is being recorded; return whether it was stored under this key."""
    return _DROP.run(conn, its_attempt=attempt, its_key=key, its_path=path) == 1


def collect_garbage(conn: Connection, now: float) -> list[PendingObject]:
    """Return objects that ended attempts stored and never announced, to be removed; later calls return others.

    An object that is recorded all the same, under another path or by another attempt, is forgotten and stays.
    """
    found = []
    for row in _GARBAGE.all(conn, now=now):
        if _is_recorded(conn, row):
            announce(conn, row["attempt"], row["key"], row["path"])
            continue
        sha256 = None
        if row["kind"] == UploadKind.CHECKPOINT.value:
            sha256 = _last_part(row["key"])
            gc_marks.clear_arriving(conn, row["key"], f"{row['attempt']}:{row['rank']}")
        found.append(PendingObject(row["key"], row["job"], sha256))
    return found


def forget(conn: Connection, keys: Collection[str]) -> None:
    """Forget objects that are removed."""
    if keys:
        _DROP_KEYS.run(conn, keys=sorted(keys))


def _is_recorded(conn: Connection, row: Row) -> bool:
    if row["kind"] == UploadKind.ARTIFACT.value:
        return _OUTPUT.value(conn, attempt=row["attempt"], sha256=_last_part(row["key"])) is not None
    if row["kind"] == UploadKind.CHECKPOINT.value:
        return _CHECKPOINT.value(conn, job=row["job"], sha256=_last_part(row["key"])) is not None
    return False


def _last_part(key: str) -> str:
    return key.rpartition("/")[2]
