"""Objects on their way: bytes that may be stored though the row that needs them never comes.

Whoever sends them may die in between. Rounds of retention look at each until a row needs it, or it is gone.
Functions of a Connection.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from crucible.control.db import meta

COMING = "retention_coming"


@dataclass(frozen=True)
class PendingObject:
    """An object that no row needs, yet or any more. `sha256`: of content that may be stored again, for `job`, or
    for nobody in particular (a bundle).
    """

    key: str
    job: str | None = None
    sha256: str | None = None


def list_pending(conn: Connection) -> list[PendingObject]:
    return [PendingObject(key, job, sha256) for key, job, sha256 in json.loads(meta.get(conn, COMING) or "[]")]


def add_pending(conn: Connection, pending: PendingObject) -> None:
    """The store is about to be asked to take it."""
    known = list_pending(conn)
    if pending not in known:
        write_pending(conn, [*known, pending])


def drop_pending(conn: Connection, keys: Collection[str]) -> None:
    """They are gone, and nobody has sent them since."""
    known = list_pending(conn)
    left = [stray for stray in known if stray.key not in keys]
    if len(left) < len(known):
        write_pending(conn, left)


def write_pending(conn: Connection, objects: Sequence[PendingObject]) -> None:
    meta.put(conn, COMING, json.dumps([[stray.key, stray.job, stray.sha256] for stray in objects]))
