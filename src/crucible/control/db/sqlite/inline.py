"""The database of a simulation: the same transactions, without threads or waiting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from os import PathLike, fspath
from typing import TypeVar

from sqlalchemy import Connection

from crucible.control.db.port import DatabaseClosed
from crucible.control.db.sqlite.connection import MEMORY, close_connection, open_reader, open_volatile
from crucible.control.db.sqlite.failures import translate_errors
from crucible.control.db.sqlite.transaction import read_snapshot, write_group

T = TypeVar("T")

_numbers = itertools.count(1)


class InlineDb:
    """`Db` that runs every function immediately in its caller; its methods never suspend.

    `path` (default: in memory): with a file, another InlineDb can continue after a simulated crash.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        where = f"{MEMORY}{next(_numbers)}" if path is None else fspath(path)
        with translate_errors():
            self._connection: Connection | None = open_volatile(where)
            self._reader = open_reader(where)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        (outcome,) = write_group(self._open(), [fn])
        value: T = outcome.unwrap()
        return value

    async def read(self, fn: Callable[[Connection], T]) -> T:
        self._open()
        return read_snapshot(self._reader, fn).unwrap()

    async def close(self) -> None:
        if self._connection is not None:
            close_connection(self._reader)
            close_connection(self._connection)
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None:
            raise DatabaseClosed("The database is closed.")
        return self._connection
