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

from crucible.control import meta
from crucible.control.ports import Ports
from crucible.core.errors import CrucibleError, TimedOut, Trouble, Unreachable
from crucible.core.ids import Prefix

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
class Claimed:
    """`busy` are being removed by somebody else; `coming` are on their way."""

    free: list[str]
    busy: list[str]
    coming: list[str]


@asynccontextmanager
async def sending(ports: Ports, key: str, who: str) -> AsyncIterator[None]:
    """Announces the object, and that it is under way inside. Where no answer came, it may still be."""
    sent = f"{who}:{ports.ids.new(Prefix.CHECKPOINT)}"
    await announce(ports, key, who, sent)
    try:
        yield
    except (TimedOut, Unreachable):
        raise
    except CrucibleError:
        await ports.db.write(lambda conn: arrived(conn, key, sent))
        raise
    await ports.db.write(lambda conn: arrived(conn, key, sent))


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


def arrived(conn: Connection, key: str, who: str) -> None:
    """Its row is there, which is reason enough to keep it; or the sending is over."""
    others = {name: at for name, at in _arriving(conn, key).items() if name != who}
    _note(conn, key, others)


def claim(conn: Connection, keys: Iterable[str], worker: str, now: float) -> Claimed:
    """Nobody is storing the free ones, nor will before `removed`."""
    asked = list(keys)
    still = [key for key in asked if not any(_fresh(at, now) for at in _arriving(conn, key).values())]
    busy = [key for key in still if _is_being_removed(conn, key, now)]
    free = [key for key in still if key not in busy]
    for key in free:
        _note(conn, key, {})
        meta.put(conn, _name(REMOVING, key), json.dumps({"worker": worker, "at": now}))
    return Claimed(free, busy, [key for key in asked if key not in still])


def removed(conn: Connection, keys: Iterable[str]) -> None:
    meta.drop(conn, *(_name(REMOVING, key) for key in keys))


def release(conn: Connection, worker: str) -> None:
    """A process of this name that died left its claims behind; nobody is removing what they name."""
    claims = meta.below(conn, REMOVING).items()
    meta.drop(conn, *(name for name, noted in claims if json.loads(noted)["worker"] == worker))


def forget(conn: Connection, now: float) -> None:
    """Drops marks whose time is over."""
    ended = [name for name, noted in meta.below(conn, REMOVING).items() if not _goes_on(noted, now)]
    for name, noted in meta.below(conn, ARRIVING).items():
        if not any(_fresh(at, now) for at in json.loads(noted).values()):
            ended.append(name)
    meta.drop(conn, *ended)


def _announce(conn: Connection, key: str, who: Iterable[str], now: float) -> bool:
    if _is_being_removed(conn, key, now):
        return False
    _note(conn, key, _arriving(conn, key) | dict.fromkeys(who, now))
    return True


def _is_being_removed(conn: Connection, key: str, now: float) -> bool:
    noted = meta.get(conn, _name(REMOVING, key))
    return noted is not None and _goes_on(noted, now)


def _goes_on(noted: str, now: float) -> bool:
    return now - float(json.loads(noted)["at"]) < REMOVAL_SECONDS


def _arriving(conn: Connection, key: str) -> dict[str, float]:
    """Who is storing it, since when."""
    found: dict[str, float] = json.loads(meta.get(conn, _name(ARRIVING, key)) or "{}")
    return found


def _note(conn: Connection, key: str, arriving: dict[str, float]) -> None:
    if arriving:
        meta.put(conn, _name(ARRIVING, key), json.dumps(arriving))
    else:
        meta.drop(conn, _name(ARRIVING, key))


def _fresh(at: float, now: float) -> bool:
    return now - at < ARRIVAL_SECONDS


def _name(kind: str, key: str) -> str:
    """Names in `meta` are short; keys are not."""
    return f"{kind}{hashlib.sha256(key.encode()).hexdigest()[:40]}"
