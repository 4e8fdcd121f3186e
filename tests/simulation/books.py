"""A database without constraints and a world without faults, for the tests of checkers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import Connection

from crucible.control.db import schema as t
from crucible.core.compute.offers import Market
from crucible.simulation.faults.checks.checkers import Checkers
from crucible.simulation.faults.checks.notifications import NotificationCheck
from crucible.simulation.faults.checks.secrets import SecretsCheck
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.ground_truth import GroundTruth
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import VirtualLoop
from crucible.simulation.faults.world.cloud import Cloud, Instance
from crucible.simulation.faults.world.machine import MachineEnvironment
from crucible.simulation.faults.world.network import Network
from crucible.simulation.faults.world.ports import WallClock, WatchedDb
from crucible.simulation.faults.world.store import MemoryStore


class Books:
    """A database that takes any rows, and a world to compare it with. `broken`: reports of the ground truth."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.db = WatchedDb()
        self.now(t.metadata.create_all)
        self.db.query("PRAGMA foreign_keys = OFF")
        self.broken: list[str] = []
        self.truth = GroundTruth(self.broken.append)
        faults = FaultRates(RandomStream(1, "weather"), self.loop.time)
        faults.end()
        self.store = MemoryStore(faults)
        self.clock = WallClock(self.loop)
        trace, rng = Trace(self.loop.time), RandomStream(1, "machines")
        environment = MachineEnvironment(Network(None, faults, rng), self.truth, trace, rng)  # type: ignore[arg-type]
        self.cloud = Cloud(self.loop, environment, faults, rng)

    def now(self, fn: object) -> None:
        asyncio.run(self.db.write(fn))  # type: ignore[arg-type]

    def change(self, statement: str) -> None:
        self.now(lambda conn: conn.exec_driver_sql(statement).rowcount)

    def put(self, table: str, **values: object) -> None:
        """Insert a row. Required columns that are not passed get an empty value."""
        columns = {str(row[1]): (str(row[2]), row[3], row[4]) for row in self.db.query(f"PRAGMA table_info({table})")}
        needed = {
            name: "" if "CHAR" in kind or kind == "TEXT" else 0
            for name, (kind, must, or_) in columns.items()
            if must and or_ is None and name not in ("cursor",)
        }
        row = {**needed, **values}

        def insert(conn: Connection) -> int:
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" for _ in row)
            return conn.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values())).rowcount

        self.now(insert)


def checkers(books: Books) -> Checkers:
    secrets = SecretsCheck(books.db, Path("no keys"))
    notifications = NotificationCheck(books.db, books.truth)
    return Checkers(
        books.db, books.truth, books.cloud, books.store, books.loop.time, books.clock, secrets, notifications
    )


def make(books: Books, token: str, ends_at: float | None = 9e9) -> None:
    async def create() -> None:
        books.cloud.create(token, "dep-1", "north-1", Market.SPOT, "nonce", ends_at)

    books.loop.run_until_complete(create())


def instance(books: Books, token: str) -> Instance:
    make(books, token)
    return next(found for found in books.cloud.instances.values() if found.machine == token)
