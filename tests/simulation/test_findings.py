"""Checkers that were never seen to find anything are none: each is shown what it must not overlook."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from sqlalchemy import Connection

from crucible.control.db import schema as t
from crucible.core.offers import Market
from crucible.simulation.faults.bills import Bills
from crucible.simulation.faults.choices import Choices
from crucible.simulation.faults.cloud import Cloud
from crucible.simulation.faults.findings import LAUNCH_SECONDS, Checkers
from crucible.simulation.faults.loop import VirtualLoop
from crucible.simulation.faults.machine import Ground
from crucible.simulation.faults.network import Network
from crucible.simulation.faults.ports import WallClock, WatchedDb
from crucible.simulation.faults.shelf import Shelf
from crucible.simulation.faults.store import MemoryStore
from crucible.simulation.faults.story import Broken
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.truth import Segment, Truth
from crucible.simulation.faults.weather import Dice, Weather
from crucible.storage.layout import checkpoint_key, log_segment_key

DATA = b"one line\n"
SHA = hashlib.sha256(DATA).hexdigest()


class Books:
    """A database that nobody guards, and a world in which nothing fails."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.db = WatchedDb()
        self.now(t.metadata.create_all)
        self.db.look("PRAGMA foreign_keys = OFF")
        self.broken: list[str] = []
        self.truth = Truth(self.broken.append)
        weather = Weather(Dice(1, "weather"), self.loop.time)
        weather.end()
        self.store = MemoryStore(weather)
        self.clock = WallClock(self.loop)
        trace, dice = Trace(self.loop.time), Dice(1, "machines")
        ground = Ground(Network(None, weather, dice), self.truth, trace, dice)  # type: ignore[arg-type]
        self.cloud = Cloud(self.loop, ground, weather, dice)

    def now(self, fn: object) -> None:
        asyncio.run(self.db.write(fn))  # type: ignore[arg-type]

    def put(self, table: str, **values: object) -> None:
        """A row; what it needs and was not given is empty."""
        columns = {str(row[1]): (str(row[2]), row[3], row[4]) for row in self.db.look(f"PRAGMA table_info({table})")}
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


@pytest.fixture
def books() -> Books:
    return Books()


def test_a_checkpoint_that_is_listed_is_there_and_whole(books: Books) -> None:
    shelf = Shelf(books.db, books.truth, books.store)
    books.put("checkpoints", id="ckp-1", job="job-1", attempt="att-1", sha256=SHA)
    with pytest.raises(Broken, match="not in the store"):
        shelf.check()
    books.store.objects[checkpoint_key("job-1", SHA)] = b"other bytes"
    with pytest.raises(Broken, match="other bytes"):
        shelf.check()
    books.store.objects[checkpoint_key("job-1", SHA)] = DATA
    shelf.check()


def test_output_has_no_gap_and_nothing_of_it_is_lost(books: Books) -> None:
    shelf = Shelf(books.db, books.truth, books.store)
    books.put("attempts", id="att-1", job="job-1")
    for n in (1, 2, 3):
        books.store.objects[log_segment_key("job-1", "att-1", 0, n)] = DATA
    books.put("log_segments", attempt="att-1", rank=0, n=1, start=0, end=9, sha256=SHA)
    shelf.check()
    books.truth.written.append(Segment("job-1", "att-1", 2, 9, 18, SHA))
    with pytest.raises(Broken, match="was acknowledged"):
        shelf.check()
    books.put("log_segments", attempt="att-1", rank=0, n=3, start=18, end=27, sha256=SHA)
    with pytest.raises(Broken, match="has a gap"):
        shelf.check()
    books.put("log_segments", attempt="att-1", rank=0, n=2, start=9, end=18, sha256=SHA)
    shelf.check()
    assert shelf.strangers() == []


def test_an_object_that_no_row_knows_is_told(books: Books) -> None:
    shelf = Shelf(books.db, books.truth, books.store)
    key = checkpoint_key("job-1", SHA)
    books.store.objects[key] = DATA
    assert shelf.strangers() == [key]
    books.put("checkpoints", id="ckp-1", job="job-1", attempt="att-1", sha256=SHA, pruned_at=1.0)
    assert "is pruned" in shelf.left()
    mark = hashlib.sha256(key.encode()).hexdigest()[:40]
    books.put("meta", key=f"arriving:{mark}", value="{}")
    assert shelf.left() == "", "it comes again"


def test_two_live_tries_of_a_generation_are_told(books: Books) -> None:
    choices = Choices(books.db, books.cloud, books.clock)
    books.put("attempts", id="att-1", job="job-1", number=1, generation=1, state="running")
    choices.check()
    books.put("attempts", id="att-2", job="job-1", number=2, generation=1, state="placed")
    with pytest.raises(Broken, match="2 live tries"):
        choices.check()


def placed(books: Books, number: int, zone: str, reason: str | None) -> None:
    ended = books.clock.now() - 60 if reason else None
    name = f"{number}"
    books.put("machines", id=f"mch-{name}", backend="cloud", region=zone, market=Market.SPOT.value, call="{}")
    books.put("slots", attempt=f"att-{name}", rank=0, machine=f"mch-{name}", ended=bool(reason))
    state = "ended" if reason else "placed"
    row = {"number": number, "generation": 1, "backend": "cloud", "state": state, "reason": reason, "ended_at": ended}
    books.put("attempts", id=f"att-{name}", job="job-1", **row)


def test_a_try_where_its_job_failed_before_is_told(books: Books) -> None:
    choices = Choices(books.db, books.cloud, books.clock)
    placed(books, 1, "north-1", "interrupted")
    choices.check()
    placed(books, 2, "north-1", None)
    with pytest.raises(Broken, match="failed its job more often than north-2"):
        choices.check()


def test_a_try_elsewhere_or_where_nothing_else_is_to_be_had_is_fine(books: Books) -> None:
    choices = Choices(books.db, books.cloud, books.clock)
    placed(books, 1, "north-1", "interrupted")
    placed(books, 2, "north-2", "refused")
    books.cloud.sell_out(("south-1", Market.SPOT))
    placed(books, 3, "north-1", None)
    choices.check()


def test_a_closed_bill_is_the_clouds(books: Books) -> None:
    bills = Bills(books.db, books.cloud, books.clock)
    billing = '{"granularity": 1, "minimum": 60}'
    books.put("machines", id="mch-1", backend="cloud", call="{}", billing=billing, metered=False)
    assert "mch-1" in bills.open()
    bills.check()
    books.put("machines", id="mch-2", backend="cloud", call="{}", billing=billing, metered=True)
    bills.check()
    books.put("machines", id="mch-3", backend="cloud", call="{}", billing=billing, metered=True)
    books.put("price_segments", machine="mch-3", n=0, starts_at=0.0, ends_at=3600.0, rate=1000, native_id="i-1")
    with pytest.raises(Broken, match="cost 1000 micro-dollars by our ledger, 0 by the cloud"):
        bills.check()


def checkers(books: Books) -> Checkers:
    return Checkers(books.db, books.truth, books.cloud, books.store, books.loop.time, books.clock)


def make(books: Books, token: str) -> None:
    async def create() -> None:
        books.cloud.create(token, "dep-1", "north-1", Market.SPOT, "nonce", None)

    books.loop.run_until_complete(create())


def test_an_instance_without_an_intent_is_told(books: Books) -> None:
    checkers(books)
    make(books, "mch-1")
    assert books.broken == ["mch-1 is made before its intent is committed"]


def test_an_instance_that_nobody_wants_any_more_is_told(books: Books) -> None:
    found = checkers(books)
    books.put("machines", id="mch-1", backend="cloud", call="{}", billing="{}", state="releasing")
    found.look(None)
    make(books, "mch-1")
    assert books.broken == [], "it was on its way"
    books.loop.run_until_complete(asyncio.sleep(LAUNCH_SECONDS + 1))
    books.cloud.honours_tokens = False
    make(books, "mch-1")
    assert books.broken == [f"mch-1 is made {LAUNCH_SECONDS + 1:.0f} s after it was given up"]


def test_a_cancel_that_was_answered_is_not_forgotten(books: Books) -> None:
    found = checkers(books)
    books.put("jobs", id="job-1", state="provisioning", desired="run", spec='{"name": "a"}')
    found.look(None)
    books.truth.cancel("job-1")
    with pytest.raises(Broken, match="as if it never was"):
        found.look(None)
    books.truth.resume("job-1")
    found.look(None)


def test_a_job_that_exists_twice_is_told(books: Books) -> None:
    found = checkers(books)
    for name in ("job-1", "job-2"):
        books.put("jobs", id=name, state="queued", desired="run", spec='{"name": "a"}')
    with pytest.raises(Broken, match="exists twice"):
        found.look(None)
