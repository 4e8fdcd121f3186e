"""Load: clients that submit without pause, a ledger of acknowledged jobs, and long-running jobs."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx
from tests.harness import Deployment, View, alive, shell, until

SMALL = {"cpus": 0.2, "memory_bytes": 64 * 1024**2}
UNAVAILABLE = 503

Servers = Callable[[], Sequence[Deployment]]


@dataclass
class Ledger:
    """Acknowledged jobs and jobs that ran: each job appends its mark, which is also its key, to a file."""

    path: Path
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Jobs by mark."""

    def spec(self, mark: str) -> View:
        # One short write to a file opened for appending is never torn.
        return shell(f"echo {mark} >> {self.path}", resources=SMALL)

    def ran(self) -> Counter[str]:
        return Counter(self.path.read_text().split() if self.path.exists() else ())

    def lost(self) -> set[str]:
        """Return acknowledged jobs that never ran."""
        return set(self.acknowledged) - set(self.ran())

    def doubled(self) -> list[str]:
        return [mark for mark, times in self.ran().items() if times > 1]

    @property
    def jobs(self) -> set[str]:
        return set(self.acknowledged.values())


class Client(threading.Thread):
    """Submits jobs one after the other, each with the same key to one server after another until one responds.

    `most` of its jobs may be under way at once, or with None any number. `refusals` are answers that were no job.
    """

    def __init__(self, servers: Servers, ledger: Ledger, stop: threading.Event, most: int | None) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._ledger = ledger
        self._stop_wanted = stop
        self._most = most
        self._turn = itertools.count()
        self._lines: dict[Deployment, httpx.Client] = {}
        self.refusals: list[httpx.Response] = []

    def run(self) -> None:
        mine: list[str] = []
        while not self._stop_wanted.is_set():
            if self._most is None or self._under_way(mine) < self._most:
                mine.append(uuid.uuid4().hex)
                self._ledger.acknowledged[mine[-1]] = self._submit(mine[-1])
            else:
                self._stop_wanted.wait(0.1)

    def _under_way(self, mine: list[str]) -> int:
        ran = self._ledger.ran()
        return sum(mark not in ran for mark in mine)

    def _submit(self, mark: str) -> str:
        while True:
            servers = self._servers()
            job = self._ask(servers[next(self._turn) % len(servers)], mark) if servers else None
            if job is not None:
                return job
            time.sleep(0.05)

    def _ask(self, server: Deployment, mark: str) -> str | None:
        try:
            line = self._lines.get(server) or server.client(timeout=30)
            self._lines[server] = line
            answer = line.post("/api/v1/jobs", json=self._ledger.spec(mark), headers={"Idempotency-Key": mark})
        except (OSError, ValueError, httpx.HTTPError):
            self._lines.pop(server, None)  # it is dead just now, and may come back at another port
            return None
        if answer.status_code in (200, 201):
            return str(answer.json()["id"])
        self.refusals.append(answer)
        return None


@contextmanager
def load(
    clients: int, servers: Servers, ledger: Ledger, *, most: int | None = None, outages: bool = False
) -> Iterator[None]:
    """So many clients are at work until the end of the block; each has its last answer then, and was never refused.

    With `outages` a server may say that it is not available.
    """
    stop = threading.Event()
    made = [Client(servers, ledger, stop, most) for _ in range(clients)]
    for client in made:
        client.start()
    try:
        yield
    finally:
        stop.set()
    for client in made:
        client.join(120)
        assert not client.is_alive()
        refused = [answer for answer in client.refusals if not (outages and answer.status_code == UNAVAILABLE)]
        assert [answer.text for answer in refused] == []


class Long:
    """A job that runs until it is released, through all faults."""

    def __init__(self, server: Deployment, folder: Path) -> None:
        folder.mkdir()
        self._go, self._pids = folder / "go", folder / "pids"
        command = f"echo $$ >> {self._pids}; while [ ! -e {self._go} ]; do sleep 0.2; done; echo over"
        self.job = server.submit(shell(command, resources=SMALL))
        until(lambda: self._pids.exists() and self._pids.read_text().endswith("\n"), 60, "a long job")

    def finish(self, server: Deployment) -> None:
        pid = int(self._pids.read_text())
        assert alive(pid), "the faults did not touch it"
        self._go.touch()
        view = server.wait(self.job, 60)
        assert (view["status"], view["attempt"]) == ("completed", 1), view
        assert view["attempts"][0]["facts"]["started"]["pid"] == pid
        assert server.log(self.job) == b"over\n"


def more_jobs(ledger: Ledger, count: int, seconds: float = 180) -> None:
    """Wait until further jobs were acknowledged and ran."""
    before, ran = len(ledger.acknowledged), len(ledger.ran())
    until(lambda: len(ledger.acknowledged) >= before + count, seconds, "jobs to be taken")
    until(lambda: len(ledger.ran()) >= ran + count, seconds, "jobs to run")


def all_over(server: Deployment, seconds: float) -> None:
    until(lambda: not server.get("/api/v1/jobs", active="true", limit=1)["items"], seconds, "all to end")


def each_ran_once(ledger: Ledger) -> None:
    assert len(ledger.jobs) == len(ledger.acknowledged), "one job for each key"
    assert ledger.lost() == set(), "acknowledged, and never run"
    assert set(ledger.ran()) - set(ledger.acknowledged) == set(), "run, and never acknowledged"
    assert ledger.doubled() == [], "run twice"


def each_completed_at_once(server: Deployment, expected: set[str]) -> None:
    """Check that these jobs completed in their first attempt."""
    completed = {view["id"] for view in all_jobs(server, status="completed") if view["attempt"] == 1}
    assert expected - completed == set()


def no_event_is_missing(server: Deployment, expected: set[str]) -> None:
    """Check that there are no other jobs, and that each job's events are numbered from 1 without a gap."""
    numbers: dict[str, list[int]] = {}
    for event in all_events(server):
        numbers.setdefault(event["job"], []).append(event["n"])
    assert set(numbers) == expected, "one job for each key, and none lost"
    gaps = [job for job, found in numbers.items() if found != list(range(1, len(found) + 1))]
    assert gaps == []


def all_jobs(server: Deployment, **wanted: str) -> Iterator[View]:
    cursor: str | None = None
    while True:
        page = server.get("/api/v1/jobs", limit=500, **wanted, **({"cursor": cursor} if cursor else {}))
        yield from page["items"]
        cursor = page["next"]
        if cursor is None:
            return


def all_events(server: Deployment) -> Iterator[View]:
    after = 0
    while page := server.get("/api/v1/events", after=after, limit=1000)["items"]:
        yield from page
        after = page[-1]["cursor"]
