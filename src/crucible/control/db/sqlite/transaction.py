"""Run functions of a Connection in transactions on SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from crucible.control.db.port import Outcome
from crucible.control.db.sqlite.connection import driver_of
from crucible.control.db.sqlite.failures import translate_error

T = TypeVar("T")
Fn = Callable[[Connection], Any]


def write_group(connection: Connection, fns: Iterable[Fn]) -> list[Outcome[Any]]:
    """Run each of `fns` in a savepoint of one transaction, and return their outcomes after COMMIT.

    `fns` may be lazy: functions that it yields while the group runs join the group. A function that raises is undone
    alone. If the transaction cannot begin or commit, the whole group fails. If SQLite rolled it back halfway (as on a
    full disk), or a deferred constraint fails at COMMIT, every function is run again in its own transaction.
    """
    driver = driver_of(connection)
    try:
        driver.execute("BEGIN IMMEDIATE").close()
    except sqlite3.Error as error:
        return [Outcome(error=translate_error(error)) for _ in fns]
    taken: list[Fn] = []
    outcomes: list[Outcome[Any]] = []
    for fn in fns:
        taken.append(fn)
        outcomes.append(_in_savepoint(connection, driver, fn))
        if not driver.in_transaction:
            return outcomes if len(taken) == 1 else _run_each_alone(connection, taken)
    return _commit(connection, taken, outcomes)


def read_snapshot(connection: Connection, fn: Callable[[Connection], T]) -> Outcome[T]:
    """Run `fn` in a transaction that is then rolled back."""
    driver = driver_of(connection)
    try:
        driver.execute("BEGIN").close()
        return Outcome(value=fn(connection))
    except BaseException as error:  # noqa: BLE001  whatever fn raises belongs to its caller
        return Outcome(error=translate_error(error))
    finally:
        _forget_transaction(connection)
        _roll_back(driver)


def _in_savepoint(connection: Connection, driver: sqlite3.Connection, fn: Fn) -> Outcome[Any]:
    try:
        driver.execute("SAVEPOINT fn").close()
        value = fn(connection)
        driver.execute("RELEASE fn").close()
        return Outcome(value=value)
    except BaseException as error:  # noqa: BLE001  whatever fn raises belongs to its caller
        _undo(connection, driver)
        return Outcome(error=translate_error(error))


def _undo(connection: Connection, driver: sqlite3.Connection) -> None:
    """Roll back to before the function. If that fails, roll back the whole transaction, which ends the group."""
    _forget_transaction(connection)
    try:
        if driver.in_transaction:
            driver.execute("ROLLBACK TO fn").close()
            driver.execute("RELEASE fn").close()
    except sqlite3.Error:
        _roll_back(driver)


def _forget_transaction(connection: Connection) -> None:
    """Reset SQLAlchemy after a function tried to commit or roll back. Sends nothing to the database."""
    transaction = connection.get_transaction()
    if transaction is not None and not transaction.is_active:
        connection.rollback()


def _commit(connection: Connection, taken: Sequence[Fn], outcomes: list[Outcome[Any]]) -> list[Outcome[Any]]:
    driver = driver_of(connection)
    try:
        driver.execute("COMMIT").close()
        return outcomes
    except sqlite3.Error as error:
        _roll_back(driver)
        if isinstance(error, sqlite3.IntegrityError) and len(taken) > 1:
            return _run_each_alone(connection, taken)
        return [each if each.error else Outcome(error=translate_error(error)) for each in outcomes]


def _run_each_alone(connection: Connection, fns: Sequence[Fn]) -> list[Outcome[Any]]:
    return [outcome for fn in fns for outcome in write_group(connection, [fn])]


def _roll_back(driver: sqlite3.Connection) -> None:
    """Roll back, ignoring errors: the next BEGIN then fails too, and reports that to its callers."""
    with contextlib.suppress(sqlite3.Error):
        if driver.in_transaction:
            driver.execute("ROLLBACK").close()
