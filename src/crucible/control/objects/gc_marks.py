"""Marks that keep uploads and removals of the same content-addressed object apart.

The same bytes may be uploaded again while an earlier use of them is being removed. An upload announces its object
first, and the object's row ends that mark; a removal claims its object first. Both are rows of one database, so one of
the two comes first and the other sees it. Bytes that are sent twice may arrive twice, the second time long after their
row, so each upload also has a mark of its own until it is over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import Connection

from crucible.control.db import meta
from crucible.control.runtime.ports import Ports
from crucible.core.errors import TimedOut, Trouble, Unreachable

ARRIVING = "arriving:"
REMOVING = "removing:"
ARRIVAL_SECONDS = 7 * 86400.0
"""How long bytes may wait in the store for the message that gives them a row."""
REMOVAL_SECONDS = 120.0
"""A removal that takes longer has died with its process."""
WAIT = 0.5


class BeingRemoved(Trouble):
    code = "being_removed"


@dataclass(frozen=True)
class RemovalClaim:
    """`free` are claimed; `busy` are being removed by another worker; `arriving` are being uploaded."""

    free: list[str]
    busy: list[str]
    arriving: list[str]


@dataclass
class UploadMark:
    """An upload under way. `begun`: the store has been asked to take the object."""

    begun: bool = False

    async def begin(self) -> None:
        self.begun = True


@asynccontextmanager
async def mark_upload(ports: Ports, key: str, who: str, number: int) -> AsyncIterator[UploadMark]:
    """Announce the object and this upload of it, until the context ends."""
    sent, state = f"{_worker_prefix(ports.worker)}{number}", UploadMark()
    await announce(ports, key, who, sent)
    try:
        yield state
    except Exception as error:
        # Without an answer of the store the bytes may still arrive: then the mark stays until it expires.
        if not (state.begun and isinstance(error, TimedOut | Unreachable)):
            await ports.db.write(lambda conn: clear_arriving(conn, key, sent))
        raise
    await ports.db.write(lambda conn: clear_arriving(conn, key, sent))


def _worker_prefix(worker: str) -> str:
    return f"sent by {worker}:"


async def announce(ports: Ports, key: str, *who: str) -> None:
    """Protect the object from removal until each of `who` has cleared its mark.

    Waits for a removal under way. Raises BeingRemoved if that does not end.
    """
    for _ in range(int(REMOVAL_SECONDS / WAIT) + 1):
        if await ports.db.write(lambda conn: _announce(conn, key, who, ports.clock.now())):
            return
        await ports.clock.sleep(WAIT)
    raise BeingRemoved(
        "The same bytes are being removed right now.",
        why=f"{key} was stored before, and is not kept.",
        fix="Send it again in a few minutes.",
    )


def clear_arriving(conn: Connection, key: str, who: str) -> None:
    """Clear one mark: the object has a row now, which protects it, or the upload is over."""
    others = {name: at for name, at in _load_arriving(conn, key).items() if name != who}
    _save_arriving(conn, key, others)


def claim_removal(conn: Connection, keys: Iterable[str], worker: str, now: float) -> RemovalClaim:
    """Claim objects for removal: nobody uploads the free ones until `end_removal`."""
    asked = list(keys)
    still = [key for key in asked if not any(_is_fresh(at, now) for at in _load_arriving(conn, key).values())]
    busy = [key for key in still if _is_being_removed(conn, key, now)]
    free = [key for key in still if key not in busy]
    for key in free:
        _save_arriving(conn, key, {})
        meta.put(conn, _meta_name(REMOVING, key), json.dumps({"worker": worker, "at": now}))
    return RemovalClaim(free, busy, [key for key in asked if key not in still])


def end_removal(conn: Connection, keys: Iterable[str]) -> None:
    meta.drop(conn, *(_meta_name(REMOVING, key) for key in keys))


def release_removals(conn: Connection, worker: str) -> None:
    """Drop the removal claims that an earlier process of this name left behind."""
    claims = meta.with_prefix(conn, REMOVING).items()
    meta.drop(conn, *(name for name, noted in claims if json.loads(noted)["worker"] == worker))


def release_uploads(conn: Connection, worker: str) -> None:
    """Drop the upload marks that an earlier process of this name left behind."""
    for name, noted in meta.with_prefix(conn, ARRIVING).items():
        arriving = json.loads(noted)
        left = {who: at for who, at in arriving.items() if not who.startswith(_worker_prefix(worker))}
        if len(left) < len(arriving):
            _put_or_drop(conn, name, left)


def drop_expired(conn: Connection, now: float) -> None:
    """Drop expired marks."""
    ended = [name for name, noted in meta.with_prefix(conn, REMOVING).items() if not _is_under_way(noted, now)]
    for name, noted in meta.with_prefix(conn, ARRIVING).items():
        if not any(_is_fresh(at, now) for at in json.loads(noted).values()):
            ended.append(name)
    meta.drop(conn, *ended)


def _announce(conn: Connection, key: str, who: Iterable[str], now: float) -> bool:
    if _is_being_removed(conn, key, now):
        return False
    known = {name: at for name, at in _load_arriving(conn, key).items() if _is_fresh(at, now)}
    _save_arriving(conn, key, known | dict.fromkeys(who, now))
    return True


def _is_being_removed(conn: Connection, key: str, now: float) -> bool:
    noted = meta.get(conn, _meta_name(REMOVING, key))
    return noted is not None and _is_under_way(noted, now)


def _is_under_way(noted: str, now: float) -> bool:
    return now - float(json.loads(noted)["at"]) < REMOVAL_SECONDS


def _load_arriving(conn: Connection, key: str) -> dict[str, float]:
    """Return who is uploading it, with the time each began."""
    found: dict[str, float] = json.loads(meta.get(conn, _meta_name(ARRIVING, key)) or "{}")
    return found


def _save_arriving(conn: Connection, key: str, arriving: dict[str, float]) -> None:
    _put_or_drop(conn, _meta_name(ARRIVING, key), arriving)


def _put_or_drop(conn: Connection, name: str, arriving: dict[str, float]) -> None:
    if arriving:
        meta.put(conn, name, json.dumps(arriving))
    else:
        meta.drop(conn, name)


def _is_fresh(at: float, now: float) -> bool:
    return now - at < ARRIVAL_SECONDS


def _meta_name(kind: str, key: str) -> str:
    """Return the mark's name in `meta`: hashed, for names there are short and keys are not."""
    return f"{kind}{hashlib.sha256(key.encode()).hexdigest()[:40]}"
