"""A process that dies by SIGKILL: what was answered is stored, what was not committed is gone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crucible.control.db import SqliteDb

if TYPE_CHECKING:
    from tests.control.db.conftest import Notes

WRITES_AND_TELLS = """
import asyncio, itertools, sys
from crucible.control.db import SqliteDb

async def write(db, start):
    for n in itertools.count(start, 8):
        await db.write(lambda c: c.exec_driver_sql("INSERT INTO notes (id) VALUES (?)", (n,)).rowcount)
        print(n, flush=True)

async def main():
    db = SqliteDb(sys.argv[1])
    await asyncio.gather(*(write(db, int(sys.argv[2]) + k) for k in range(8)))

asyncio.run(main())
"""

DIES_BEFORE_COMMIT = """
import asyncio, os, signal, sys
from sqlalchemy import event
from sqlalchemy.pool import Pool
from crucible.control.db import SqliteDb

def die(statement):
    if statement in ("RELEASE fn", "COMMIT"):
        print(statement, flush=True)
    if statement == "COMMIT":
        os.kill(os.getpid(), signal.SIGKILL)

async def write(db, n):
    await db.write(lambda c: c.exec_driver_sql("INSERT INTO notes (id) VALUES (?)", (n,)).rowcount)
    print("answered", flush=True)

async def main():
    event.listen(Pool, "connect", lambda driver, record: driver.set_trace_callback(die))
    db = SqliteDb(sys.argv[1])
    await asyncio.gather(*(write(db, n) for n in range(3)))

asyncio.run(main())
"""


async def stored(path: Path, table: Notes) -> list[int]:
    db = SqliteDb(path)
    try:
        return await db.read(table.ids)
    finally:
        await db.close()


async def prepared(path: Path, table: Notes) -> None:
    db = SqliteDb(path)
    await db.write(table.create)
    await db.close()


def killed_after(lines: int, path: Path, start: int) -> list[int]:
    """Start the writing program, kill it once it has told `lines` writes; return all that it told."""
    command = [sys.executable, "-c", WRITES_AND_TELLS, str(path), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        told += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    return [int(line) for line in told if line.endswith("\n")]


async def test_nothing_acknowledged_is_lost_by_five_kills(tmp_path: Path, table: Notes) -> None:
    path = tmp_path / "killed.db"
    await prepared(path, table)
    acknowledged: set[int] = set()
    for kill in range(5):
        acknowledged.update(killed_after(37 + 50 * kill, path, start=kill * 1_000_000))
        assert acknowledged <= set(await stored(path, table))
    assert len(acknowledged) >= 5 * 37


async def test_a_crash_between_release_and_commit_loses_the_group_and_no_answer_left(
    tmp_path: Path, table: Notes
) -> None:
    path = tmp_path / "crashed.db"
    await prepared(path, table)
    command = [sys.executable, "-c", DIES_BEFORE_COMMIT, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    said = child.stdout.split("\n")
    assert "RELEASE fn" in said
    assert "COMMIT" in said
    assert "answered" not in said
    assert await stored(path, table) == []
