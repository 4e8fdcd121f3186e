"""`python -m benchmarks.listing`: fill a database with jobs, serve it, and measure each filter over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2

from benchmarks.listing import history
from benchmarks.listing.serve import TOKEN
from crucible.control.db import open_database

JOBS = 100_000
TIMES = 40
BOUND_MS = 150.0
WARM = 3
START_SECONDS = 60.0
SPEC = {"command": ["true"], "name": "one more", "backend": "local"}

WHOLE_PAGE = "a page of 500"
"""Ten times the default page: reported, but not compared with the bound."""

FILTERS = (
    ("all", ""),
    (WHOLE_PAGE, "limit=500"),
    ("status=completed", "status=completed"),
    ("status=queued", "status=queued"),
    ("status=running", "status=running"),
    ("active", "active=true"),
    ("backend, most", "backend=local"),
    ("backend, few", "backend=modal"),
    ("backend, none", "backend=nowhere"),
    ("kind, few", "kind=benchmark"),
    ("project, few", "project=secret"),
    ("name, a part", "name=try-77"),
    ("name, beginning", "name=speech-nightly-03*"),
    ("name, none", "name=no-such-name"),
    ("whole name", "named=vision-try-4242"),
    ("tag, common", "tag=sweep"),
    ("tag, rare", "tag=baseline"),
    ("tag with value", "tag=team%3Dspeech"),
    ("two tags", "tag=team%3Dspeech&tag=baseline"),
    ("text, common", "text=learning-rate+3e-4"),
    ("text, one", "text=--seed+31337+"),
    ("text, none", "text=no+such+words"),
    ("created before", f"created_before={history.START + 5000 * history.EVERY_SECONDS:.0f}"),
    ("created between", f"created_after={history.START + 60_000}&created_before={history.START + 120_000}"),
    ("tag and status", "tag=team%3Dspeech&status=failed"),
    ("many at once", "status=failed&backend=modal&tag=sweep&kind=train&project=vision&text=robots"),
)


@dataclass(frozen=True)
class Figure:
    name: str
    p50: float
    p95: float
    items: int


def main(words: Sequence[str]) -> None:
    """Report the figures; a filter above the bound is marked, but is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listing", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--times", type=int, default=TIMES, help="requests of each kind")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own, not on SQLite")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="crucible-bench-") as folder, contextlib.ExitStack() as stack:
        database = _postgres(stack) if asked.postgres else str(Path(folder) / "crucible.db")
        seconds = asyncio.run(fill(database, asked.jobs))
        sys.stdout.write(f"{asked.jobs} jobs written in {seconds:.0f} s; each line {asked.times} requests\n")
        with serving(database, Path(folder)) as client:
            figures = [measured(client, name, query, asked.times) for name, query in FILTERS]
            submits = submitted(client, asked.times)
    tell(figures, submits)


def _postgres(stack: contextlib.ExitStack) -> str:
    """Yield the URL of an empty database on a PostgreSQL server with default settings."""
    from tests.postgres import server

    return stack.enter_context(stack.enter_context(server()).database())


async def fill(database: str, count: int) -> float:
    began = time.monotonic()
    db = open_database(database)
    try:
        await db.write(lambda conn: history.write(conn, count))
    finally:
        await db.close()
    return time.monotonic() - began


@contextlib.contextmanager
def serving(database: str, folder: Path) -> Iterator[httpx2.Client]:
    """Yield a client, with a kept connection, of a server in its own process."""
    command = [sys.executable, "-m", "benchmarks.listing.serve", database, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            with httpx2.Client(base_url=url, headers=headers, timeout=START_SECONDS) as client:
                yield client
        finally:
            server.communicate(timeout=START_SECONDS)


def measured(client: httpx2.Client, name: str, query: str, times: int) -> Figure:
    took, items = [], 0
    for n in range(times + WARM):
        began = time.perf_counter()
        answer = client.get(f"/api/v1/jobs?{query}")
        if n >= WARM:
            took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
        items = len(answer.json()["items"])
    return Figure(name, *_percentiles(took), items)


def submitted(client: httpx2.Client, times: int) -> Figure:
    """Measure durable submissions, one after the other."""
    took = []
    for n in range(times * 5 + WARM):
        began = time.perf_counter()
        answer = client.post("/api/v1/jobs", json=SPEC)
        if n >= WARM:
            took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
    return Figure("submit", *_percentiles(took), 1)


def tell(figures: list[Figure], submits: Figure) -> None:
    sys.stdout.write(f"{'filter':<20}{'p50 ms':>9}{'p95 ms':>9}{'items':>7}\n")
    for figure in [*figures, submits]:
        mark = f"  over {BOUND_MS:g} ms" if _late(figure) else ""
        sys.stdout.write(f"{figure.name:<20}{figure.p50:>9.1f}{figure.p95:>9.1f}{figure.items:>7}{mark}\n")


def _late(figure: Figure) -> bool:
    return figure.p95 > BOUND_MS and figure.name != WHOLE_PAGE


def _percentiles(took: list[float]) -> tuple[float, float]:
    ordered = sorted(took)
    return ordered[len(ordered) // 2], ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
