"""The server is killed -9 again and again while clients submit: what was acknowledged is done, once.

A longer run: pytest tests/faults/test_kill9.py --scale prove
"""

from __future__ import annotations

import random
import statistics
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx
from tests.harness import Deployment, View, alive, shell, until
from tests.scale import Scale

CLIENTS = 12
LONG_JOBS = 3
WAITING = 3
"""Jobs that one client may have under way; more would only lengthen the end."""
SMALL = {"cpus": 0.2, "memory_bytes": 64 * 1024**2}
READY_SECONDS = 3.0
READY_AT_WORST = 6.0
"""Without the time in which the server could have run and other programs had the processors."""


@dataclass
class Ledger:
    """What was acknowledged, and what ran: each job appends its own mark to a file."""

    path: Path
    acknowledged: dict[str, str] = field(default_factory=dict)

    def spec(self, mark: str) -> View:
        # One short write to a file opened for appending is never torn.
        return shell(f"echo {mark} >> {self.path}", resources=SMALL)

    def ran(self) -> Counter[str]:
        return Counter(self.path.read_text().split() if self.path.exists() else ())


class Client(threading.Thread):
    """Submits one job after the other. A job without an answer is sent again under the same key."""

    def __init__(self, crucible: Deployment, ledger: Ledger, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._crucible = crucible
        self._ledger = ledger
        self._stop_wanted = stop
        self.trouble: list[str] = []

    def run(self) -> None:
        mine: list[str] = []
        while not self._stop_wanted.is_set():
            ran = self._ledger.ran()
            if sum(mark not in ran for mark in mine) < WAITING:
                mark = uuid.uuid4().hex
                self._ledger.acknowledged[mark] = self._submit(mark)
                mine.append(mark)
            self._stop_wanted.wait(0.1)

    def _submit(self, mark: str) -> str:
        while True:
            try:
                with self._crucible.client(timeout=10) as client:
                    headers = {"Idempotency-Key": mark}
                    answer = client.post("/api/v1/jobs", json=self._ledger.spec(mark), headers=headers)
                if answer.status_code in (200, 201):
                    return str(answer.json()["id"])
                self.trouble.append(answer.text)
            except (OSError, ValueError, httpx.HTTPError):
                pass  # it is dead just now
            time.sleep(0.05)


def test_nothing_acknowledged_is_lost_or_done_twice(crucible: Deployment, tmp_path: Path, scale: Scale) -> None:
    ledger = Ledger(tmp_path / "ran")
    long = [_Long(crucible, tmp_path / f"long-{number}") for number in range(LONG_JOBS)]
    stop = threading.Event()
    clients = [Client(crucible, ledger, stop) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        ready = [_kill_and_start(crucible) for _ in range(scale.kills)]
    finally:
        stop.set()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
        assert client.trouble == []
    print("ready after", " ".join(f"{start.seconds:.2f} ({start.own:.2f})" for start in ready), "s")
    print(len(ledger.acknowledged), "jobs were acknowledged")
    for job in long:
        job.finish()
    _wait_for_all(crucible, ledger)
    _check(crucible, ledger, long)
    own = [start.own for start in ready]
    assert statistics.median(own) <= READY_SECONDS, ready
    assert max(own) <= READY_AT_WORST, ready


@dataclass(frozen=True)
class Start:
    """How long a start took, and how much of that it had to stand in line for a processor."""

    seconds: float
    in_line: float

    @property
    def own(self) -> float:
        return self.seconds - self.in_line


def _kill_and_start(crucible: Deployment) -> Start:
    time.sleep(random.uniform(0.3, 3.0))
    crucible.kill()
    seconds = crucible.start()
    assert crucible.server is not None
    return Start(seconds, _in_line(crucible.server.pid))


def _in_line(pid: int) -> float:
    """Seconds that the process's first thread was ready to run and did not; 0 where nobody counts them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


class _Long:
    """A job that runs across all kills, until it is let go."""

    def __init__(self, crucible: Deployment, folder: Path) -> None:
        folder.mkdir()
        self._crucible = crucible
        self._go = folder / "go"
        command = f"echo $$ >> {folder}/pids; while [ ! -e {self._go} ]; do sleep 0.2; done; echo over"
        self.job = crucible.submit(shell(command, resources=SMALL))
        self._pids = folder / "pids"
        until(lambda: self._pids.exists() and self._pids.read_text().endswith("\n"), 60, "a long job")

    def finish(self) -> None:
        pid = int(self._pids.read_text())
        assert alive(pid), "the kills did not touch it"
        self._go.touch()
        view = self._crucible.wait(self.job, 60)
        assert view["status"] == "completed", view
        assert [attempt["facts"]["started"]["pid"] for attempt in view["attempts"]] == [pid]
        assert self._crucible.log(self.job) == b"over\n"


def _wait_for_all(crucible: Deployment, ledger: Ledger) -> None:
    seconds = 60 + len(ledger.acknowledged) * 0.5
    until(lambda: not crucible.get("/api/v1/jobs", active="true", limit=1)["items"], seconds, "all to end")


def _check(crucible: Deployment, ledger: Ledger, long: list[_Long]) -> None:
    views = {view["id"]: view for view in _all_jobs(crucible)}
    acknowledged = set(ledger.acknowledged.values())
    assert set(views) == acknowledged | {job.job for job in long}, "one job for each key, and none lost"
    assert len(acknowledged) == len(ledger.acknowledged)
    ran = ledger.ran()
    assert set(ran) == set(ledger.acknowledged)
    assert [mark for mark, times in ran.items() if times > 1] == [], "run twice"
    assert [v["id"] for v in views.values() if (v["status"], v["attempt"]) != ("completed", 1)] == []
    for job in views:
        numbers = [event["n"] for event in crucible.events(job)]
        assert numbers == list(range(1, len(numbers) + 1)), f"the events of {job} have a gap"
    crucible.nothing_left()


def _all_jobs(crucible: Deployment) -> list[View]:
    found: list[View] = []
    page = crucible.get("/api/v1/jobs", limit=100)
    while True:
        found += page["items"]
        if page["next"] is None:
            return found
        page = crucible.get("/api/v1/jobs", limit=100, cursor=page["next"])
