"""Uploaded objects whose database row may never be written, since the uploader may die in between.

Retention checks each of them until a row needs it or it is gone.
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
    """An object that no row needs, not yet or no longer.

    `sha256` is set if the content may be uploaded again, for `job` or (a bundle) for any job.
    """

    key: str
    job: str | None = None
    sha256: str | None = None


def list_pending(conn: Connection) -> list[PendingObject]:
    return [PendingObject(key, job, sha256) for key, job, sha256 in json.loads(meta.get(conn, COMING) or "[]")]


def add_pending(conn: Connection, pending: PendingObject) -> None:
    """Add an object before the store is asked to take it."""
    known = list_pending(conn)
    if pending not in known:
        write_pending(conn, [*known, pending])


def drop_pending(conn: Connection, keys: Collection[str]) -> None:
    """Drop objects that are removed and that nobody has uploaded again."""
    known = list_pending(conn)
    left = [stray for stray in known if stray.key not in keys]
    if len(left) < len(known):
        write_pending(conn, left)


def write_pending(conn: Connection, objects: Sequence[PendingObject]) -> None:
    meta.put(conn, COMING, json.dumps([[stray.key, stray.job, stray.sha256] for stray in objects]))
