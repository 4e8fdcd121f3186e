"""Three servers on one PostgreSQL database share the work; what is killed of them loses and doubles nothing."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2 as httpx
import psycopg
import pytest
from tests.harness import Deployment, View, alive, shell, until
from tests.postgres import Server, server

SMALL = {"cpus": 0.2, "memory_bytes": 64 * 1024**2}
CLIENTS = 3
WAITING = 4
"""Jobs that one client may have under way; more would only lengthen the end."""
JOBS_BETWEEN = 5
"""Jobs that are acknowledged between one kill and the next."""
TAKEOVER_SECONDS = 30.0
BUSY_SECONDS = 10.0
"""What a machine that is busy with other things may add."""


@dataclass
class Fleet:
    """Servers that share database, key, store and this computer. Each has a state folder of its own."""

    folder: Path
    postgres: Server
    url: str
    servers: list[Deployment] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {
            "CRUCIBLE_DATABASE": self.url,
            "CRUCIBLE_KEY_FILE": str(self.folder / "key"),
            "CRUCIBLE_STORE": str(self.folder / "store"),
            "CRUCIBLE_LOCAL_FOLDER": str(self.places.home),
        }

    @property
    def places(self) -> Deployment:
        """The processes of this computer's machines, which belong to no single server."""
        return Deployment(self.folder / "places")

    def add(self, **env: str) -> Deployment:
        made = Deployment(self.folder / f"server-{len(self.servers)}", {**self.env, **env})
        self.servers.append(made)
        return made

    @property
    def living(self) -> list[Deployment]:
        return [s for s in self.servers if s.server is not None and s.server.poll() is None]

    def holder(self) -> Deployment | None:
        """The server that has the scheduler's duty now."""
        with psycopg.connect(self.url) as connection:
            query = "SELECT holder FROM roles WHERE name LIKE 'scheduler%' AND until > extract(epoch FROM now())"
            row = connection.execute(query).fetchone()
        pid = int(row[0].split(":")[1]) if row else None
        return next((s for s in self.living if s.server is not None and s.server.pid == pid), None)


@contextmanager
def fleet(folder: Path, count: int) -> Iterator[Fleet]:
    with server("fsync=off") as postgres, postgres.database() as url:
        made = Fleet(folder, postgres, url)
        (folder / "key").write_text("5e" * 32)
        try:
            for _ in range(count):
                made.add().start()
            yield made
        finally:
            for one in made.servers:
                one.close()
            made.places.close()


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
    """Submits one job after the other, each to the next server that answers, under the same key until one does."""

    def __init__(self, fleet: Fleet, ledger: Ledger, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._ledger = ledger
        self._stop_wanted = stop
        self._turn = itertools.count()
        self.trouble: list[str] = []

    def run(self) -> None:
        mine: list[str] = []
        while not self._stop_wanted.is_set():
            ran = self._ledger.ran()
            if sum(mark not in ran for mark in mine) < WAITING:
                mine.append(uuid.uuid4().hex)
                self._ledger.acknowledged[mine[-1]] = self._submit(mine[-1])
            self._stop_wanted.wait(0.3)

    def _submit(self, mark: str) -> str:
        while True:
            living = self._fleet.living
            job = self._ask(living[next(self._turn) % len(living)], mark)
            if job is not None:
                return job

    def _ask(self, to: Deployment, mark: str) -> str | None:
        try:
            with to.client(timeout=30) as client:
                headers = {"Idempotency-Key": mark}
                answer = client.post("/api/v1/jobs", json=self._ledger.spec(mark), headers=headers)
        except (OSError, ValueError, httpx.HTTPError):
            return None  # it was killed
        if answer.status_code not in (200, 201):
            self.trouble.append(answer.text)
            return None
        return str(answer.json()["id"])


class Long:
    """A job that runs across all kills, until it is let go."""

    def __init__(self, to: Deployment, folder: Path) -> None:
        folder.mkdir()
        self._go, self._pids = folder / "go", folder / "pids"
        command = f"echo $$ >> {self._pids}; while [ ! -e {self._go} ]; do sleep 0.2; done; echo over"
        self.job = to.submit(shell(command, resources=SMALL))
        until(lambda: self._pids.exists() and self._pids.read_text().endswith("\n"), 60, "a long job")

    def finish(self, survivor: Deployment) -> None:
        pid = int(self._pids.read_text())
        assert alive(pid), "the kills did not touch it"
        self._go.touch()
        view = survivor.wait(self.job, 60)
        assert (view["status"], view["attempt"]) == ("completed", 1), view
        assert survivor.log(self.job) == b"over\n"


def test_two_of_three_are_killed_and_each_job_runs_once(tmp_path: Path) -> None:
    with fleet(tmp_path, 3) as three:
        ledger, stop = Ledger(tmp_path / "ran"), threading.Event()
        long = [Long(one, tmp_path / f"long-{number}") for number, one in enumerate(three.servers)]
        clients = [Client(three, ledger, stop) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            took = [_kill_the_busiest(three, ledger) for _ in range(2)]
            _more_jobs(ledger, JOBS_BETWEEN)
        finally:
            stop.set()
        for client in clients:
            client.join(60)
            assert not client.is_alive()
            assert client.trouble == []
        print("duties taken over after", " ".join(f"{seconds:.1f}" for seconds in took), "s")
        print(len(ledger.acknowledged), "jobs were acknowledged")
        (survivor,) = three.living
        for job in long:
            job.finish(survivor)
        _check(survivor, ledger, {job.job for job in long})
        assert max(took) <= TAKEOVER_SECONDS + BUSY_SECONDS, took


def _kill_the_busiest(three: Fleet, ledger: Ledger) -> float:
    """kill -9 of the server that schedules while clients submit; seconds until another does."""
    _more_jobs(ledger, JOBS_BETWEEN)
    until(three.holder, 60, "a server on duty").kill()
    began = time.monotonic()
    until(three.holder, TAKEOVER_SECONDS * 2, "another to take over")
    return time.monotonic() - began


def _more_jobs(ledger: Ledger, count: int) -> None:
    """Until further jobs were acknowledged and have run."""
    before, ran = len(ledger.acknowledged), len(ledger.ran())
    until(lambda: len(ledger.acknowledged) >= before + count, 60, "jobs to be taken")
    until(lambda: len(ledger.ran()) >= ran + count, 120, "jobs to run")


def _check(survivor: Deployment, ledger: Ledger, long: set[str]) -> None:
    seconds = 60 + len(ledger.acknowledged) * 0.5
    until(lambda: not survivor.get("/api/v1/jobs", active="true", limit=1)["items"], seconds, "all to end")
    acknowledged = set(ledger.acknowledged.values())
    assert len(acknowledged) == len(ledger.acknowledged), "one job for each key"
    ran = ledger.ran()
    assert set(ran) == set(ledger.acknowledged), "none lost"
    assert [mark for mark, times in ran.items() if times > 1] == [], "run twice"
    for job in acknowledged | long:
        view = survivor.job(job)
        assert (view["status"], view["attempt"]) == ("completed", 1), view
        numbers = [event["n"] for event in survivor.events(job)]
        assert numbers == list(range(1, len(numbers) + 1)), f"the events of {job} have a gap"


def test_what_one_takes_the_others_show_and_a_stopped_one_hands_over(tmp_path: Path) -> None:
    with fleet(tmp_path, 2) as two:
        first, second = two.servers
        job = second.submit(shell("echo hello", resources=SMALL))
        assert first.wait(job)["status"] == "completed"
        assert first.log(job) == second.log(job) == b"hello\n"
        assert [e["n"] for e in first.events(job)] == [e["n"] for e in second.events(job)]
        long = Long(first, tmp_path / "long")
        second.cancel(long.job)
        assert first.wait(long.job)["status"] == "cancelled"
        holder = until(two.holder, 30, "a server on duty")
        (other,) = [one for one in two.living if one is not holder]
        holder.stop()
        assert until(two.holder, TAKEOVER_SECONDS * 2, "the other to take over") is other
        again = other.submit(shell("echo again", resources=SMALL))
        assert other.wait(again, 90)["status"] == "completed"


def test_a_server_without_its_database_says_so_and_recovers_by_itself(tmp_path: Path) -> None:
    with fleet(tmp_path, 1) as fleet_of_one:
        (only,) = fleet_of_one.servers
        long = Long(only, tmp_path / "long")
        fleet_of_one.postgres.stop()
        with only.client(timeout=60) as client:
            answer = client.get("/api/v1/jobs")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
            assert client.get("/healthz").status_code == 200
        fleet_of_one.postgres.start()
        job = until(lambda: _submitted(only), 60, "the server to recover")
        assert only.wait(job)["status"] == "completed"
        long.finish(only)


def _submitted(to: Deployment) -> str | None:
    with to.client() as client:
        answer = client.post("/api/v1/jobs", json=shell("true", resources=SMALL))
    return str(answer.json()["id"]) if answer.status_code == 201 else None


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [("CRUCIBLE_KEY_FILE", "other-key", "wrong_deployment"), ("CRUCIBLE_LOCAL_FOLDER", "other", "other_computer")],
)
def test_a_server_that_does_not_belong_is_refused(tmp_path: Path, setting: str, value: str, code: str) -> None:
    with fleet(tmp_path, 1) as fleet_of_one:
        (tmp_path / "other-key").write_text("7a" * 32)
        stranger = fleet_of_one.add(**{setting: str(tmp_path / value)})
        command = [sys.executable, "-m", "crucible.app", "serve"]
        ended = subprocess.run(command, env=stranger.env, capture_output=True, text=True, timeout=60, check=False)
        told = json.loads(ended.stderr.splitlines()[-1])["error"]
        assert (ended.returncode != 0, told["code"]) == (True, code)
        assert told["fix"]
        assert fleet_of_one.servers[0].get("/readyz")["ready"]
