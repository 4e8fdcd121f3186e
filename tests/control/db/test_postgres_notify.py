"""Wake-ups across processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import psycopg
import pytest

from crucible.control.db.postgres.notify import MAX_TOPIC_BYTES, MAX_TOPICS, PostgresWakeups
from crucible.control.runtime.ports import Wakeups
from crucible.control.telemetry.feed import Feed, Hint

OTHER_PROCESS = """
import asyncio, sys
from crucible.control.db.postgres.notify import PostgresWakeups

async def main():
    wakeups = PostgresWakeups(sys.argv[1])
    await wakeups.start()
    with wakeups.listening("ping") as listener:
        await wakeups.connected(30)
        await listener.wait(0)
        print("ready", flush=True)
        print(await listener.wait(30), flush=True)
    wakeups.wake("pong")
    await asyncio.to_thread(sys.stdin.readline)
    await wakeups.close()

asyncio.run(main())
"""


async def connected(url: str) -> PostgresWakeups:
    wakeups = PostgresWakeups(url)
    await wakeups.start()
    await wakeups.connected(30)
    return wakeups


@pytest.fixture
async def first(postgres_url: str) -> AsyncIterator[PostgresWakeups]:
    wakeups = await connected(postgres_url)
    yield wakeups
    await wakeups.close()


@pytest.fixture
async def second(postgres_url: str) -> AsyncIterator[PostgresWakeups]:
    wakeups = await connected(postgres_url)
    yield wakeups
    await wakeups.close()


async def test_a_wake_up_reaches_another_process_and_comes_back(first: PostgresWakeups, postgres_url: str) -> None:
    command = [sys.executable, "-c", OTHER_PROCESS, postgres_url]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        first.listening("pong") as listener,
    ):
        assert other.stdout is not None
        assert await asyncio.to_thread(other.stdout.readline) == "ready\n"
        first.wake("ping")
        assert await asyncio.to_thread(other.stdout.readline) == "True\n"
        assert await listener.wait(30)
        other.communicate("end\n", timeout=30)
    assert other.returncode == 0


async def test_only_those_who_listen_to_the_topic_are_woken(first: PostgresWakeups, second: PostgresWakeups) -> None:
    with second.listening("a") as a, second.listening("b") as b:
        first.wake("a")
        assert await a.wait(30)
        assert not await b.wait(0)


async def test_who_listens_in_this_process_is_woken_at_once_and_only_once(
    first: PostgresWakeups, second: PostgresWakeups
) -> None:
    with first.listening("a") as listener, second.listening("a") as theirs, first.listening("b") as echo:
        first.wake("a")
        assert await listener.wait(0)
        assert await theirs.wait(30)
        second.wake("b")  # arrives after whatever came back of the first
        assert await echo.wait(30)
        assert not await listener.wait(0)


async def test_a_topic_woken_often_is_told_seldom(
    first: PostgresWakeups, second: PostgresWakeups, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as watcher, second.listening("last") as listener:
        watcher.execute("LISTEN crucible")
        for _ in range(1000):
            first.wake("often")
        first.wake("last")
        assert await listener.wait(30)
        heard = [notice.payload for notice in watcher.notifies(timeout=0.2)]
    assert heard.count("often") == 1
    assert heard.count("last") == 1


@pytest.mark.parametrize(
    "topics", [["x" * (MAX_TOPIC_BYTES + 1)], ["nul\0"], [f"topic {n}" for n in range(MAX_TOPICS + 1)]]
)
async def test_what_cannot_be_told_by_name_wakes_everything(
    first: PostgresWakeups, second: PostgresWakeups, topics: list[str]
) -> None:
    with second.listening("anything") as listener:
        for topic in topics:
            first.wake(topic)
        assert await listener.wait(30)


async def test_the_longest_topic_arrives(first: PostgresWakeups, second: PostgresWakeups) -> None:
    topic = "ü" * (MAX_TOPIC_BYTES // 2)
    with second.listening(topic) as listener, second.listening("other") as other:
        first.wake(topic)
        assert await listener.wait(30)
        assert not await other.wait(0)


def end_all_sessions(url: str) -> None:
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(others, (admin.info.dbname,))


async def test_after_a_lost_connection_everything_is_woken_once_and_it_goes_on(
    first: PostgresWakeups, second: PostgresWakeups, postgres_url: str
) -> None:
    with second.listening("a") as a, second.listening("b") as b:
        await asyncio.to_thread(end_all_sessions, postgres_url)
        assert await a.wait(30)
        assert await b.wait(30)
        await first.connected(30)
        await second.connected(30)
        await b.wait(0)
        first.wake("a")
        assert await a.wait(30)
        assert not await b.wait(0)


async def test_nothing_waits_for_a_server_that_is_not_there() -> None:
    wakeups = PostgresWakeups("postgresql://127.0.0.1:1/crucible")
    await wakeups.start()
    with wakeups.listening("a") as listener:
        wakeups.wake("a")
        assert await listener.wait(0)
    with pytest.raises(TimeoutError):
        await wakeups.connected(0.05)
    await wakeups.close()


async def test_what_was_woken_before_the_start_is_told_after_it(second: PostgresWakeups, postgres_url: str) -> None:
    late: Wakeups = (wakeups := PostgresWakeups(postgres_url))
    with second.listening("early") as listener:
        late.wake("early")
        await wakeups.start()
        assert await listener.wait(30)
    await wakeups.close()


async def test_a_watcher_hears_of_what_another_process_did(first: PostgresWakeups, second: PostgresWakeups) -> None:
    mine, other = Feed(first), Feed(second)
    with mine.watch("job-1") as watch, mine.watch("job-2") as untouched:
        other.publish("job-1", [Hint.EVENT])
        assert await watch.changed(30) == {Hint.EVENT}
        assert await untouched.changed(0) == set()


async def test_a_watcher_looks_at_everything_once_a_lost_connection_is_back(
    first: PostgresWakeups, postgres_url: str
) -> None:
    feed = Feed(first)
    with feed.watch("job-1") as watch:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert await watch.changed(30) == set(Hint)
