"""Measure each figure on a running server or on fresh ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx2
from tests.harness import until

from benchmarks.figures.deployment import Running, busy, command_cpu, running
from benchmarks.figures.figure import Figure, median, percentile

LONG_SECONDS = 600.0
IDLE_SECONDS = 5.0
SOME_JOBS = 20
WAITS: dict[str, Any] = {"command": ["true"], "name": "one that waits"}

NEEDLE = "the one that is looked for"
WRITER = (
    "import sys\n"
    "lines, needle = int(sys.argv[1]), sys.argv[2]\n"
    "for n in range(lines):\n"
    "    word = needle if n == lines - 2 else 'nothing to see'\n"
    "    sys.stdout.write(f'epoch {n // 1000} step {n} loss {1 / (n + 1):.6f} {word}\\n')\n"
)


def starts(home: Path, times: int) -> list[Figure]:
    """Measure the time from process start to `/readyz` on an existing state folder, and the idle memory afterwards."""
    took, cpu, memory = [], [], 0.0
    for n in range(times + 1):
        with running(home) as server:
            if n == times:
                time.sleep(IDLE_SECONDS)
                memory = server.memory_mb
            if n:
                took.append(server.ready_seconds)
                cpu.append(server.ready_cpu)
    also = {"fastest": min(took), "CPU": median(cpu), "least CPU": min(cpu)}
    return [
        Figure(name="server ready", value=median(took), bound=1.5, unit="s", also=also),
        Figure(name="server idle", value=memory, bound=150, unit="MB"),
    ]


def commands(server: Running, times: int) -> list[Figure]:
    """Measure the CPU time of commands with a server that has some jobs; the first run only warms the page cache."""
    with busy(server) as client:
        submit(client, SOME_JOBS)
        return [_command(server, words, bound, times) for words, bound in (("--help", 0.15), ("status", 0.3))]


def _command(server: Running, words: str, bound: float, times: int) -> Figure:
    cpu = [command_cpu(server.home, words) for _ in range(times + 1)][1:]
    return Figure(name=f"crucible {words}", value=median(cpu), bound=bound, unit="s CPU", also={"least": min(cpu)})


def submits(server: Running, times: int) -> list[Figure]:
    """Measure durable submissions over HTTP, one after the other, on one connection."""
    with busy(server) as client:
        submit(client, SOME_JOBS)
        took = submit(client, times)
    also = {"p95": percentile(took, 0.95), "p99": percentile(took, 0.99)}
    return [Figure(name="durable submit, p50", value=median(took), bound=5, unit="ms", also=also)]


def submit(client: httpx2.Client, times: int) -> list[float]:
    """Return the milliseconds of each submission."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        answer = client.post("/api/v1/jobs", json=WAITS)
        took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
    return took


def search(server: Running, lines: int, times: int) -> list[Figure]:
    """Measure the search for one line near the end of a real job's output."""
    with server.client() as client:
        spec = {"command": ["{python}", "-c", WRITER, str(lines), NEEDLE], "name": "a long log"}
        job = client.post("/api/v1/jobs", json=spec).raise_for_status().json()["id"]
        until(lambda: client.get(f"/api/v1/jobs/{job}").json()["status"] == "completed", LONG_SECONDS, "the job")
        until(lambda: searched(client, job)[1] >= lines, LONG_SECONDS, "its log")
        took = [searched(client, job)[0] for _ in range(times)]
    also = {"slowest": max(took)}
    return [Figure(name=f"search {lines:,} lines", value=median(took), bound=3, unit="s", also=also)]


def searched(client: httpx2.Client, job: str) -> tuple[float, int]:
    """Return the seconds until the line was found, and the number of lines searched."""
    began, seen, cursor, hits = time.perf_counter(), 0, None, 0
    while True:
        query = {"q": NEEDLE, **({"cursor": cursor} if cursor else {})}
        page = client.get(f"/api/v1/jobs/{job}/logs/search", params=query).raise_for_status().json()
        seen, cursor, hits = seen + page["searched"]["lines"], page["next"], hits + len(page["items"])
        if cursor is None:
            return time.perf_counter() - began, seen if hits == 1 else 0
