"""Three servers share a PostgreSQL database that is restarted and killed under load, and whoever is on duty is killed.

It syncs to disk, and all that was acknowledged has to be there after each of its processes was ended by SIGKILL.

A longer run: pytest tests/faults/test_postgres_restarts.py --scale prove
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.faults.fleet import Fleet, fleet
from tests.faults.load import (
    Ledger,
    Long,
    all_over,
    each_completed_at_once,
    each_ran_once,
    load,
    more_jobs,
    no_event_is_missing,
)
from tests.harness import until
from tests.postgres import Server
from tests.scale import TEST, Record, Scale

Way = Callable[[Server], None]

SERVERS = 3
CLIENTS = 6
MOST = 3
"""Jobs that one client may have under way; more would only lengthen the end."""
JOBS_BETWEEN = 5
"""Jobs that are acknowledged and run between one fault and the next."""
STAY_DEAD = SERVERS - 1
AWAY_SECONDS = 4.0
TAKEOVER_SECONDS = 30.0
BUSY_SECONDS = 10.0
"""What a machine that is busy with other things may add."""


@pytest.mark.timeout(480)
def test_restarts_and_kills_lose_and_double_nothing(tmp_path: Path, scale: Scale, record: Record) -> None:
    ways = _ways(scale)
    with fleet(tmp_path, SERVERS, fsync=True) as three:
        ledger = Ledger(tmp_path / "ran")
        long = [Long(one, tmp_path / f"long-{number}") for number, one in enumerate(three.servers)]
        with load(CLIENTS, lambda: three.living, ledger, most=MOST, outages=True):
            took = _faults(three, ledger, ways, scale.holders)
        one = three.living[0]
        for job in long:
            job.finish(one)
        all_over(one, 60 + len(ledger.acknowledged) * 0.5)
        known = ledger.jobs | {job.job for job in long}
        each_ran_once(ledger)
        each_completed_at_once(one, known)
        no_event_is_missing(one, known)
    print("duties taken over after", *(f"{seconds:.1f}" for seconds in took), "s")
    record(
        "PostgreSQL: restarts and kills of role holders under load",
        restarts=len(ways),
        kills_of_postgres=ways.count(_kill),
        kills=len(took),
        takeover_max_s=round(max(took, default=0.0), 1),
        acknowledged=len(ledger.acknowledged),
        lost=len(ledger.lost()),
        doubled=len(ledger.doubled()),
    )
    assert max(took, default=0.0) <= TAKEOVER_SECONDS + (BUSY_SECONDS if scale == TEST else 0.0), took


def _faults(three: Fleet, ledger: Ledger, ways: Sequence[Way], holders: int) -> list[float]:
    """Restarts in these ways and as many kills as asked for, each kill with a restart while nobody has the dead
    one's duties.

    Who was killed is started again, but for the last two: one of three goes on alone. Seconds from each kill until
    another server had the duties.
    """
    took = []
    for number in range(max(len(ways), holders)):
        more_jobs(ledger, JOBS_BETWEEN)
        holder = until(three.holder, 60, "a server on duty") if number < holders else None
        began = time.monotonic()
        if holder is not None:
            holder.kill()
        if number < len(ways):
            ways[number](three.postgres)
        if holder is not None:
            until(three.holder, TAKEOVER_SECONDS * 3, "another to take over")
            took.append(time.monotonic() - began)
        if holder is not None and number < holders - STAY_DEAD:
            holder.start(seconds=60)
    more_jobs(ledger, JOBS_BETWEEN)
    return took


def _ways(scale: Scale) -> list[Way]:
    """How PostgreSQL ends each time: kills evenly among the others, which take turns."""
    others = itertools.cycle((_orderly, _away, _crash))
    kills = [number * scale.kills_of_postgres // max(scale.restarts, 1) for number in range(scale.restarts + 1)]
    return [_kill if before < after else next(others) for before, after in itertools.pairwise(kills)]


def _orderly(postgres: Server) -> None:
    postgres.restart(signal.SIGINT)


def _crash(postgres: Server) -> None:
    postgres.restart(signal.SIGQUIT)


def _away(postgres: Server) -> None:
    postgres.stop()
    time.sleep(AWAY_SECONDS)
    postgres.start()


def _kill(postgres: Server) -> None:
    postgres.restart(signal.SIGKILL)
