"""The ports of the control plane: whatever it needs of the world, passed in as values.

A simulation passes its own clock, ids, database and calls; nothing in this room reads the time, makes
randomness, starts a thread or opens a socket by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from crucible.control.db.clock import database_now
from crucible.control.db.port import Db
from crucible.core.errors import CrucibleError, Trouble
from crucible.core.ids import Prefix
from crucible.storage import Store

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def steady(self) -> float:
        """Seconds on a clock that nobody sets. They mean something to this process alone."""

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def new(self, prefix: Prefix) -> str: ...


class Random(Protocol):
    def uniform(self, low: float, high: float) -> float: ...


class CallBroke(Trouble):
    """What was called raised something it does not announce: a defect there, or in a vendor's library."""

    code = "call_broke"


def run_guarded(lane: str, work: Callable[[], T]) -> T:
    """The result of `work`; whatever it raises comes as a CrucibleError, for callers to expect."""
    try:
        return work()
    except CrucibleError:
        raise
    except Exception as error:
        what = f"{lane} broke with {type(error).__name__}."
        raise CallBroke(what, why=str(error), fix="See the server's log; it will be asked again.") from error


class Calls(Protocol):
    """Runs blocking work, each lane bounded: a place that hangs fills only its own lane."""

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        """The result, or `TimedOut` after `deadline` seconds (the work itself may still be going on).

        Work goes through `guarded`: only CrucibleErrors come out.
        """

    async def close(self) -> None: ...


class Listener(Protocol):
    async def wait(self, timeout: float) -> bool:
        """True when woken since the last wait, False when `timeout` seconds passed."""


class Wakeups(Protocol):
    """A hint that there is something to do. Losing one delays work until the next sweep, never loses it."""

    def wake(self, topic: str) -> None: ...

    def listening(self, topic: str) -> AbstractContextManager[Listener]:
        """Wake-ups from now on are kept for the listener: who looks first and then waits misses none."""

    def subscribe_remote(self, prefix: str, tell: Callable[[str | None], None]) -> None:
        """Other processes' topics that begin with `prefix` are told; None when some may have been missed."""

    async def start(self) -> None:
        """Begins to hear of other processes, where there may be some. Waits for nobody."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Ports:
    clock: Clock
    ids: Ids
    random: Random
    db: Db
    store: Store
    calls: Calls
    wakeups: Wakeups
    worker: str
    """This process's name on claims and roles."""

    async def write(self, fn: Callable[[Connection, float], T]) -> T:
        """Run `fn` in one transaction, with the time that all processes on this database share."""
        return await self.db.write(lambda conn: fn(conn, database_now(conn, self.clock.now)))
