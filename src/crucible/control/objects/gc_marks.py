"""Marks on objects that are named by their content: what arrives is not removed, what is removed does not arrive.

The same bytes may come again while an earlier use of them is being removed. Who stores such an object announces
it first, and its row takes that back; who removes one claims it first. Both are rows of one database, so one of
the two comes first, and the other sees it. Bytes that are sent twice may arrive twice, the second time long after
their row: each sending has a mark of its own, too, until it is over.
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
"""How long bytes may be there, or on their way, before the message that makes them count has come."""
REMOVAL_SECONDS = 120.0
"""A removal that has not ended by then never will: its process has died."""
WAIT = 0.5


class BeingRemoved(Trouble):
    code = "being_removed"


@dataclass(frozen=True)
class RemovalClaim:
    """`busy` are being removed by somebody else; `coming` are on their way."""

    free: list[str]
    busy: list[str]
    arriving: list[str]


@dataclass
class UploadMark:
    """`begun`: the store has been asked to take the object."""

    begun: bool = False

    async def begin(self) -> None:
        self.begun = True


@asynccontextmanager
async def mark_upload(ports: Ports, key: str, who: str, number: int) -> AsyncIterator[UploadMark]:
    """Announces the object, and that this worker's sending of that number is under way. It may still be where the
    store gave no answer.
    """
    sent, state = f"{_worker_prefix(ports.worker)}{number}", UploadMark()
    await announce(ports, key, who, sent)
    try:
        yield state
    except Exception as error:
        if not (state.begun and isinstance(error, TimedOut | Unreachable)):
            await ports.db.write(lambda conn: clear_arriving(conn, key, sent))
        raise
    await ports.db.write(lambda conn: clear_arriving(conn, key, sent))


def _worker_prefix(worker: str) -> str:
    return f"sent by {worker}:"


async def announce(ports: Ports, key: str, *who: str) -> None:
    """From now on the object is not removed until all have `arrived`. Waits for a removal to end, or raises
    BeingRemoved.
    """
    for _ in range(int(REMOVAL_SECONDS / WAIT) + 1):
        if await ports.db.write(lambda conn: _announce(conn, key, who, ports.clock.now())):
            return
        await ports.clock.sleep(WAIT)
    raise BeingRemoved(
        "The same bytes are being removed just now.",
        why=f"{key} was stored before, and is not kept.",
        fix="Send it again in a few minutes.",
    )


def clear_arriving(conn: Connection, key: str, who: str) -> None:
    """Its row is there, which is reason enough to keep it; or the sending is over."""
    others = {name: at for name, at in _load_arriving(conn, key).items() if name != who}
    _save_arriving(conn, key, others)


def claim_removal(conn: Connection, keys: Iterable[str], worker: str, now: float) -> RemovalClaim:
    """Nobody is storing the free ones, nor will before `removed`."""
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
    """A process of this name that died left its claims behind; nobody is removing what they name."""
    claims = meta.with_prefix(conn, REMOVING).items()
    meta.drop(conn, *(name for name, noted in claims if json.loads(noted)["worker"] == worker))


def release_uploads(conn: Connection, worker: str) -> None:
    """The same for sendings: what a process of this name was sending when it died, nobody is sending now."""
    for name, noted in meta.with_prefix(conn, ARRIVING).items():
        arriving = json.loads(noted)
        left = {who: at for who, at in arriving.items() if not who.startswith(_worker_prefix(worker))}
        if len(left) < len(arriving):
            _put_or_drop(conn, name, left)


def drop_expired(conn: Connection, now: float) -> None:
    """Drops marks whose time is over."""
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
    """Who is storing it, since when."""
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
    """Names in `meta` are short; keys are not."""
    return f"{kind}{hashlib.sha256(key.encode()).hexdigest()[:40]}"
