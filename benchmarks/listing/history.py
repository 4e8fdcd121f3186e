"""Generate the history of a busy deployment: jobs with many names, backends and tags, most of them ended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, insert, text

from crucible.control.db import schema as t
from crucible.control.jobs.labels import fold_case
from crucible.control.reconcile import codec
from crucible.core.compute.resources import Allocation, Capacity, GiB, Resources
from crucible.core.ids import Prefix, make_id
from crucible.core.job.spec import JobSpec, Kind, Source, SourceKind
from crucible.core.lifecycle import Attempt, AttemptState, Job, JobState, Machine, Reason, Slot

START = 1_700_000_000.0
EVERY_SECONDS = 60.0
BATCH = 2_000
MACHINE = make_id(Prefix.MACHINE, 1, 1)

STATES = (
    (JobState.COMPLETED, 80),
    (JobState.FAILED, 13),
    (JobState.CANCELLED, 5),
    (JobState.QUEUED, 1),
    (JobState.RUNNING, 1),
)
PLACES = (("local", 60), ("ssh", 25), ("aws", 14), ("modal", 1))
PROJECTS = (("default", 70), ("vision", 29), ("secret", 1))
TEAMS = ("vision", "speech", "search", "robots")

Rows = dict[Table, list[dict[str, Any]]]


def write(conn: Connection, count: int, seed: int = 1) -> None:
    """Store `count` jobs, one per minute, the same for the same seed."""
    _add(conn, {t.machines: [codec.machine_row(_machine())]})
    for rows in batches(count, random.Random(seed)):  # noqa: S311  no secret comes of it
        _add(conn, rows)
    if conn.dialect.name == "postgresql":
        conn.execute(text("ANALYZE"))


def batches(count: int, dice: random.Random) -> Iterator[Rows]:
    for first in range(0, count, BATCH):
        rows: Rows = {t.jobs: [], t.listings: [], t.job_tags: [], t.attempts: [], t.slots: []}
        for n in range(first, min(first + BATCH, count)):
            _one(rows, n, dice)
        yield rows


def _add(conn: Connection, rows: Rows) -> None:
    for table, found in rows.items():
        if found:
            conn.execute(insert(table), found)


def _one(rows: Rows, n: int, dice: random.Random) -> None:
    at = START + n * EVERY_SECONDS
    job = _job(n, at, dice)
    rows[t.jobs].append(codec.job_row(job))
    words = fold_case(" ".join([*job.spec.command, job.spec.source.path or ""]))
    name = job.spec.name or ""
    rows[t.listings].append(
        {"job": job.id, "kind": job.spec.kind.value, "name": name, "folded": fold_case(name), "words": words}
    )
    for tag in job.spec.tags:
        key, _, value = tag.partition("=")
        rows[t.job_tags].append({"job": job.id, "key": key, "value": value})
    if job.attempts:
        attempt = _attempt(job, n, at)
        rows[t.attempts].append(codec.attempt_row(attempt))
        rows[t.slots] += [codec.slot_row(attempt.id, slot) for slot in attempt.slots]


def _job(n: int, at: float, dice: random.Random) -> Job:
    state, place, project = _of(STATES, dice), _of(PLACES, dice), _of(PROJECTS, dice)
    waits = state is JobState.QUEUED
    return Job(
        make_id(Prefix.JOB, int(at * 1000), dice.getrandbits(80)),
        _spec(n, dice),
        Resources(cpus=2),
        at,
        project=project,
        state=state,
        backend=place,
        attempts=0 if waits else 1,
        events=6,
        exit_code=None if not state.terminal else int(state is JobState.FAILED),
        reason=Reason.EXIT_CODE if state is JobState.FAILED else None,
        started_at=None if waits else at + 1,
        ended_at=at + 3600 if state.terminal else None,
    )


def _spec(n: int, dice: random.Random) -> JobSpec:
    team, rate = dice.choice(TEAMS), dice.choice((1, 3, 10))
    command = ("{python}", "train.py", "--learning-rate", f"{rate}e-4", "--seed", str(n), "--data", f"/data/{team}/set")
    tags = (f"team={team}", f"run={n}", *(("baseline",) if n % 1000 == 0 else ()), *(("sweep",) if n % 3 else ()))
    name = f"{team}-nightly-{n // 1440:03d}" if n % 2 else f"{team}-try-{n}"
    source = Source(kind=SourceKind.SCRIPT, path=f"/home/someone/{team}/train.py")
    kind = dice.choices((Kind.TRAIN, Kind.INFERENCE, Kind.BENCHMARK), (90, 9, 1))[0]
    return JobSpec(command=command, name=name, kind=kind, tags=tags, source=source)


def _attempt(job: Job, n: int, at: float) -> Attempt:
    ended = job.state.terminal
    return Attempt(
        make_id(Prefix.ATTEMPT, int(at * 1000), n),
        job.id,
        1,
        1,
        job.backend,
        (Slot(0, MACHINE, Allocation(cpus=2, memory_bytes=GiB), ended),),
        at,
        state=AttemptState.ENDED if ended else AttemptState.RUNNING,
        started_at=at + 1,
        ended_at=at + 3600 if ended else None,
    )


def _machine() -> Machine:
    return Machine(
        MACHINE,
        backend="local",
        owner="pool:local",
        rate=0,
        created_at=START,
        launch_deadline=START + 30,
        call="{}",
        capacity=Capacity(cpus=64, memory_bytes=256 * GiB),
        bills=False,
    )


def _of(table: tuple[tuple[Any, int], ...], dice: random.Random) -> Any:
    return dice.choices([value for value, _ in table], [weight for _, weight in table])[0]
