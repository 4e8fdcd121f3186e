"""The ports of the control plane: its access to the outside world, passed in as values.

A simulation passes its own clock, ids, database and calls. Nothing else in this package reads the time, uses
randomness, starts a thread or opens a socket.
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
        """Return seconds since the epoch, UTC."""

    def steady(self) -> float:
        """Return seconds on a monotonic clock; only meaningful within this process."""

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def new(self, prefix: Prefix) -> str: ...


class Random(Protocol):
    def uniform(self, low: float, high: float) -> float: ...


class CallBroke(Trouble):
    """A call raised an unexpected error: a bug in it or in a vendor's library."""

    code = "call_broke"


def run_guarded(lane: str, work: Callable[[], T]) -> T:
    """Return the result of `work`. Any error other than a CrucibleError is raised as CallBroke."""
    try:
        return work()
    except CrucibleError:
        raise
    except Exception as error:
        what = f"{lane} broke with {type(error).__name__}."
        raise CallBroke(what, why=str(error), fix="See the server's log. The call will be repeated.") from error


class Calls(Protocol):
    """Runs blocking work in bounded lanes: a backend that hangs fills only its own lane."""

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        """Return the result; raise TimedOut after `deadline` seconds (the work itself may continue).

        Work goes through `run_guarded`, so it raises only CrucibleErrors.
        """

    async def close(self) -> None: ...


class Listener(Protocol):
    async def wait(self, timeout: float) -> bool:
        """Return True once woken since the last wait, False after `timeout` seconds."""


class Wakeups(Protocol):
    """Hints that there is work. A lost one delays work until the next sweep, and never loses it."""

    def wake(self, topic: str) -> None: ...

    def listening(self, topic: str) -> AbstractContextManager[Listener]:
        """Keep wake-ups from now on for the listener. Listen before reading the state, and none is missed."""

    def subscribe_remote(self, prefix: str, callback: Callable[[str | None], None]) -> None:
        """Call back with topics of other processes that begin with `prefix`, or None if some may have been missed."""

    async def start(self) -> None:
        """Start to receive wake-ups of other processes, in the background."""

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
