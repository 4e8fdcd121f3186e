"""State folders that version 0.1.0 left, unpacked for tests.

The folders and the agent's file in them are that version's own; record.py made them and says what is in them. What ran
while they were recorded is dead, as after a power cut. Where agents of 0.1.0 are to be alive, a test starts them from
that file as 0.1.0 did.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from tests.harness import Deployment, View, until
from tests.state_0_1_0.databases import ARCHIVE

LONG = 120.0
SMALL = {"resources": {"cpus": 0.25, "memory_bytes": 128 * 1024**2}}
NOWHERE = "http://127.0.0.1:1"
SETTINGS = {
    "https": {
        "CRUCIBLE_BACKENDS": "local,rehearsal",
        "CRUCIBLE_SHARED_COMPUTER": "true",
        "CRUCIBLE_WEBHOOK_HOSTS": "127.0.0.1",
    },
    "store": {"CRUCIBLE_CHANNEL": "store"},
}
"""By the channel between agents and server; what the recording server was started with."""
FIRST_HALF = "".join(["begins with 1\n", *(f"step {n}\n" for n in range(1, 11))]).encode()
SECOND_HALF = "".join([*(f"step {n}\n" for n in range(11, 21)), "end\n"]).encode()
COUNTED = bytes(range(256)) * 100


@functools.cache
def snapshot() -> View:
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile("snapshot.json")
        assert file is not None
        return dict(json.load(file))


class State:
    """A state folder of 0.1.0 with a deployment on it whose server has not been started yet."""

    def __init__(self, folder: Path, channel: str) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        recorded: View = snapshot()[channel]
        self.jobs: dict[str, str] = recorded["unfinished"]
        self.crucible = Deployment(folder, SETTINGS[channel])
        (folder / channel).rename(self.crucible.home)
        (self.machine,) = self.crucible.home.glob("machines/*")
        self._move(recorded["home"])
        (lost,) = (path.parent for path in self.machine.glob("attempts/*/process.json"))
        self.unsent = b"".join(path.read_bytes() for path in sorted((lost / "output.log").iterdir()))
        self.host: subprocess.Popen[bytes] | None = None

    def _move(self, recorded: str) -> None:
        """Write the folder's present path into it, and an address where no server listens yet.

        At the recorded address there may be the server of another test.
        """
        home = self.crucible.home
        address = (home / "agents.url").read_text().strip()
        (home / "ports.json").unlink()
        documents = self.machine / "bootstrap.json", *self.machine.glob("attempts/*/assignment.json")
        for path in (home / "agents.url", *documents):
            path.write_text(path.read_text().replace(recorded, str(home)).replace(address, NOWHERE))

    def start_host(self) -> int:
        """Start the machine's host from the agent's file of 0.1.0, with the words that 0.1.0 used; its pid."""
        (agent,) = self.crucible.home.glob("agent/agent-*.pyz")
        command = [sys.executable, "-I", str(agent), "host", "--bootstrap", str(self.machine / "bootstrap.json")]
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
        with open(self.machine / "host.log", "ab") as log:
            self.host = subprocess.Popen(
                command,
                cwd=self.machine,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.host.pid

    def until_half_way(self) -> None:
        """Wait until the job whose order was written down stands still after its first half."""
        until((self.crucible.home / f"half-way-{self.jobs['ordered']}").exists, LONG, "the first half")

    def open_gate(self) -> None:
        (self.crucible.home / "gate").touch()

    def runner(self) -> psutil.Process:
        """The living runner of the job that stands still."""
        (attempt,) = (a["id"] for a in self.crucible.job(self.jobs["ordered"])["attempts"])
        (path,) = self.machine.glob(f"attempts/{attempt}-*/runner.json")
        return psutil.Process(json.loads(path.read_bytes())["pid"])

    def until_removed(self) -> None:
        """Wait until the host has removed the folder of every attempt: they are over, and the server has it all."""
        until(lambda: not list(self.machine.glob("attempts/*")), LONG, "the attempts to be removed")

    def kill_host(self) -> None:
        assert self.host is not None
        self.host.kill()
        self.host.wait()

    def close(self) -> None:
        self.crucible.close()
        if self.host is not None:
            self.host.wait(30)


@contextmanager
def state(folder: Path, channel: str) -> Iterator[State]:
    """One at a time on a computer: control groups are named after attempts, and these always have the same ids."""
    with open(Path(tempfile.gettempdir()) / "crucible-state-0.1.0.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = State(folder, channel)
        try:
            yield made
        finally:
            made.close()


def contents(crucible: Deployment, job: str) -> dict[str, bytes]:
    """The files that the job left, as a user downloads them."""
    with crucible.client() as client:
        base = f"/api/v1/jobs/{job}/artifacts"
        items = client.get(base).raise_for_status().json()["items"]
        return {item["path"]: client.get(f"{base}/{item['path']}").raise_for_status().content for item in items}


def check_unfinished_jobs(state: State) -> None:
    """All of them end well, with everything that they left before and after."""
    crucible, jobs = state.crucible, state.jobs
    views = {name: crucible.wait(job, LONG) for name, job in jobs.items()}
    assert {name: view["status"] for name, view in views.items()} == dict.fromkeys(jobs, "completed"), views

    assert [attempt["reason"] for attempt in views["ordered"]["attempts"]] == ["completed"]
    assert crucible.log(jobs["ordered"]) == FIRST_HALF + SECOND_HALF
    assert contents(crucible, jobs["ordered"]) == {"counted.bin": COUNTED}
    points = crucible.get(f"/api/v1/jobs/{jobs['ordered']}/metrics")["series"]["loss"]["points"]
    assert [(step, value) for step, value, _ in points] == [(n, 1 / n) for n in range(1, 21)]
    (checkpoint,) = crucible.get(f"/api/v1/jobs/{jobs['ordered']}/checkpoints")["items"]
    assert (checkpoint["step"], checkpoint["sha256"]) == (10, hashlib.sha256(b"10").hexdigest())

    assert [attempt["reason"] for attempt in views["lost"]["attempts"]] == ["runner_lost", "completed"]
    before = crucible.log(jobs["lost"], attempt=1)
    assert before.startswith(FIRST_HALF)
    assert before.endswith(state.unsent)
    assert set(before.removeprefix(FIRST_HALF).splitlines()) == {b"waits"}
    assert crucible.log(jobs["lost"], attempt=2) == b"begins with 11\n" + SECOND_HALF
    assert contents(crucible, jobs["lost"]) == {"counted.bin": COUNTED}

    value = hashlib.sha256(snapshot()["https"]["given"]["secret"].encode()).hexdigest()
    assert crucible.log(jobs["secretive"]).decode() == f"{value}\n"

    trained = snapshot()["https"]["jobs"]["trained"]
    of_trained = snapshot()["https"]["snapshot"]["jobs"][trained]
    assert crucible.log(jobs["placed"]).decode() == of_trained["logs"]["1"]
    left = {path: hashlib.sha256(data).hexdigest() for path, data in contents(crucible, jobs["placed"]).items()}
    assert left == {item["path"]: item["sha256"] for item in of_trained["artifacts"]["items"]}
    assert views["placed"]["result"]["value"] == of_trained["job"]["result"]["value"]

    assert crucible.log(jobs["waiting"]) == b"it ran\n"
    assert contents(crucible, jobs["waiting"]) == {"ran.txt": b"done\n"}
    state.until_removed()
