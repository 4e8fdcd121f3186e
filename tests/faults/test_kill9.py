"""The server is killed -9 again and again while clients submit: what was acknowledged is there, and done once.

Some jobs run as they come. Then one asks for the whole computer, and all that come after it wait in line while the
kills go on: the server carries a queue as long as the number of submits asked for.

A longer run: pytest tests/faults/test_kill9.py --scale prove
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.load import (
    Ledger,
    Long,
    all_jobs,
    all_over,
    each_completed_at_once,
    each_ran_once,
    load,
    no_event_is_missing,
)
from tests.harness import Deployment, shell, until
from tests.scale import Record, Scale

pytestmark = pytest.mark.usefixtures("new_interpreters")

CLIENTS = 12
LONG_JOBS = 3
MOST = 3
"""Jobs that one client may have under way while they run; more would only lengthen the end."""
RUNNING_SHARE = 0.4
"""Of the kills, those that happen while jobs run as they come."""
WHILE_THEY_RUN, WHILE_THEY_QUEUE = (0.2, 2.0), (0.1, 0.7)
"""Seconds from when a server is ready to its end: jobs that run have to find it first, those that queue are taken by
the hundred in one second.
"""
READY_SECONDS = 3.0
READY_AT_WORST = 6.0
"""Without the time in which the server could have run and other programs had the processors."""
START_AT_WORST = 120.0
"""With that time."""
SLOWEST = 5.0
"""Submits a second, on a machine that is busy with other things."""


@pytest.mark.timeout(480)
def test_nothing_acknowledged_is_lost_or_done_twice(
    crucible: Deployment, tmp_path: Path, scale: Scale, record: Record
) -> None:
    long = [Long(crucible, tmp_path / f"long-{number}") for number in range(LONG_JOBS)]
    run, wait = Ledger(tmp_path / "ran"), Ledger(tmp_path / "ran-too-soon")
    early = max(round(scale.kills * RUNNING_SHARE), 1)
    with load(CLIENTS, lambda: [crucible], run, most=MOST):
        starts = [_kill_and_start(crucible, *WHILE_THEY_RUN) for _ in range(early)]
    whole = crucible.submit(shell(f"echo whole >> {tmp_path}/whole"))
    with load(CLIENTS, lambda: [crucible], wait):
        starts += _kill_while_they_queue(crucible, run, wait, scale)
    known = run.jobs | wait.jobs | {job.job for job in long} | {whole}
    _cancel(crucible, wait)
    for job in long:
        job.finish(crucible)
    assert crucible.wait(whole)["status"] == "completed"
    all_over(crucible, 60 + len(run.acknowledged) * 0.5)
    each_ran_once(run)
    each_completed_at_once(crucible, known - wait.jobs)
    assert wait.ran() == {}, "cancelled before their turn"
    no_event_is_missing(crucible, known)
    crucible.nothing_left()
    lost = {job["id"] for job in all_jobs(crucible)} ^ known
    crucible.stop()
    _each_key_has_its_job(crucible, run, wait)
    _tell(record, starts, len(run.acknowledged) + len(wait.acknowledged), len(run.lost() | lost), len(run.doubled()))


@dataclass(frozen=True)
class Start:
    """How long a start took, and how much of that it had to stand in line for a processor."""

    seconds: float
    in_line: float

    @property
    def own(self) -> float:
        return self.seconds - self.in_line


def _kill_and_start(crucible: Deployment, soonest: float, latest: float) -> Start:
    time.sleep(random.uniform(soonest, latest))
    crucible.kill()
    seconds = crucible.start(seconds=START_AT_WORST)
    assert crucible.server is not None
    return Start(seconds, _in_line(crucible.server.pid))


def _in_line(pid: int) -> float:
    """Seconds that the process's first thread was ready to run and did not; 0 where nobody counts them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


def _kill_while_they_queue(crucible: Deployment, run: Ledger, wait: Ledger, scale: Scale) -> Iterable[Start]:
    """The rest of the kills, spread over the rest of the submits."""
    kills = scale.kills - max(round(scale.kills * RUNNING_SHARE), 1)
    submits = max(scale.submits - len(run.acknowledged), 0)
    for number in range(1, kills + 1):
        _taken(wait, submits * number // (kills + 1))
        yield _kill_and_start(crucible, *WHILE_THEY_QUEUE)
    _taken(wait, submits)


def _taken(ledger: Ledger, count: int) -> None:
    missing = max(count - len(ledger.acknowledged), 0)
    until(lambda: len(ledger.acknowledged) >= count, 60 + missing / SLOWEST, "jobs to be taken")


def _each_key_has_its_job(crucible: Deployment, *ledgers: Ledger) -> None:
    """Read it from the database, which nobody else can open while the server runs."""
    with closing(sqlite3.connect(crucible.home / "crucible.db")) as database:
        stored = dict(database.execute("SELECT key, job FROM idempotency"))
    assert stored == {mark: job for ledger in ledgers for mark, job in ledger.acknowledged.items()}


def _cancel(crucible: Deployment, wait: Ledger) -> None:
    """What waits is cancelled, as a user's script would do it, and is over at once."""
    with crucible.client(timeout=60) as client, ThreadPoolExecutor(CLIENTS) as pool:
        answers = pool.map(lambda job: client.post(f"/api/v1/jobs/{job}/cancel").json(), wait.jobs)
        assert {answer["status"] for answer in answers} <= {"cancelled"}
    assert {view["id"] for view in all_jobs(crucible, status="cancelled")} == wait.jobs


def _tell(record: Record, starts: list[Start], acknowledged: int, lost: int, doubled: int) -> None:
    own = [start.own for start in starts]
    median, worst = statistics.median(own), max(own)
    record(
        "kill -9 of the server under 12 clients",
        kills=len(starts),
        acknowledged=acknowledged,
        lost=lost,
        doubled=doubled,
        ready_median_s=round(median, 2),
        ready_max_s=round(worst, 2),
    )
    assert median <= READY_SECONDS, starts
    assert worst <= READY_AT_WORST, starts
