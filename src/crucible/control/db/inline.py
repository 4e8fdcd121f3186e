"""The database of a simulation: the same transactions, no thread, no waiting."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import TypeVar

from sqlalchemy import Connection

from crucible.control.db.connection import close, driver_of, open_volatile
from crucible.control.db.failures import translating
from crucible.control.db.port import DatabaseClosed
from crucible.control.db.transaction import read_snapshot, write_group

T = TypeVar("T")


class InlineDb:
    """`Db` that runs every function at once in the caller; its methods never suspend.

    In memory by default; on a file, another InlineDb can carry on after a simulated crash.
    """

    def __init__(self, path: str | PathLike[str] = ":memory:") -> None:
        with translating():
            self._connection: Connection | None = open_volatile(fspath(path))

    async def write(self, fn: Callable[[Connection], T]) -> T:
        (outcome,) = write_group(self._open(), [fn])
        value: T = outcome.unwrap()
        return value

    async def read(self, fn: Callable[[Connection], T]) -> T:
        connection = self._open()
        driver = driver_of(connection)
        driver.execute("PRAGMA query_only=ON").close()
        try:
            return read_snapshot(connection, fn).unwrap()
        finally:
            driver.execute("PRAGMA query_only=OFF").close()

    async def close(self) -> None:
        if self._connection is not None:
            close(self._connection)
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None:
            raise DatabaseClosed("The database is closed.")
        return self._connection
