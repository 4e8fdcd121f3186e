"""Between agents and their server all goes wrong that can: jobs run on, once, and all they say arrives, once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.proxy import Fault, FaultProxy, Rule, fault_proxy, storm
from tests.faults.rehearsal_deployment import rehearsed
from tests.harness import Deployment, View, alive, shell, until
from tests.scale import Record, Scale

LONG = 150.0
SHORTEST, LONGER = 5.0, 17.0
"""Seconds of a partition. The second is above the time that agents wait for an answer; beyond that the lengths are
those of tests/agent/test_partition.py and tests/control/test_partition.py."""

NOISE = (
    Rule(Fault.DELAY, 0.5, seconds=0.2),
    Rule(Fault.DROP_ANSWER, 0.1),
    Rule(Fault.CUT_REQUEST, 0.08),
    Rule(Fault.CUT_ANSWER, 0.04),
    Rule(Fault.TRUNCATE, 0.04),
    Rule(Fault.DUPLICATE, 0.15),
    Rule(Fault.RESET, 0.04),
    *storm(0.08),
)

PRINTER = """\
import os, sys, time

folder, lines, gates, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
block = lines // (gates + 1) + 1
with open(f"{folder}/pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
for number in range(lines):
    if number and number % block == 0:
        open(f"{folder}/at-{number // block}", "w").close()
        while not os.path.exists(f"{folder}/gate-{number // block}"):
            time.sleep(0.05)
    print(f"line {number}")
    if number % 1000 == 999:
        time.sleep(pause)
for name in ("CHECKPOINT", "OUTPUT"):
    with open(os.path.join(os.environ[f"CRUCIBLE_{name}_DIR"], "large.bin"), "wb") as file:
        file.write(bytes(range(256)) * 8192)
"""
LARGE = hashlib.sha256(bytes(range(256)) * 8192).hexdigest()


class Line:
    """A deployment whose agents reach it through `proxy` alone, and a program there that prints."""

    def __init__(self, crucible: Deployment, proxy: FaultProxy, folder: Path) -> None:
        self.crucible = crucible
        self.proxy = proxy
        self._folder = folder

    def start(self) -> None:
        self.crucible.start(seconds=LONG)
        self.proxy.aim(f"http://127.0.0.1:{json.loads((self.crucible.home / 'ports.json').read_text())['agents']}")

    @contextmanager
    def dead(self) -> Iterator[None]:
        """Meanwhile there is no server."""
        self.crucible.kill()
        yield
        self.start()

    def print(self, lines: int, *, gates: int = 0, pause: float = 0.02) -> str:
        """A job that prints, and stops at each gate until that is opened."""
        words = [str(self._folder), str(lines), str(gates), str(pause)]
        return self.crucible.submit({"command": ["{python}", "-u", "-c", PRINTER, *words]})

    def at_gate(self, number: int) -> None:
        """Waits until the program has printed all that comes before the gate."""
        until((self._folder / f"at-{number}").exists, LONG, f"gate {number}")

    def open_gate(self, number: int) -> None:
        (self._folder / f"gate-{number}").touch()

    def ran_once(self, job: str) -> View:
        """The job once it is over, in the one process that it ever had."""
        view = self.crucible.wait(job, 4 * LONG)
        (pid,) = map(int, (self._folder / "pids").read_text().split())
        assert (view["status"], view["attempt"]) == ("completed", 1), view["reason"]
        assert view["attempts"][0]["facts"]["started"]["pid"] == pid
        assert not alive(pid)
        self.crucible.nothing_left(LONG)
        return view


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with fault_proxy("http://127.0.0.1:1") as proxy:
        crucible = Deployment(tmp_path, {"CRUCIBLE_AGENTS_URL": proxy.url})
        line = Line(crucible, proxy, tmp_path)
        try:
            line.start()
            yield line
        finally:
            crucible.close()


def test_every_line_arrives_once_and_in_order(line: Line, scale: Scale, record: Record) -> None:
    outages = [
        (line.proxy.parted(), SHORTEST),
        (line.dead(), 1.0),
        (line.proxy.refusing(), 3.0),
        (line.dead(), 1.0),
        (line.proxy.parted(), LONGER),
    ]
    job = line.print(scale.lines, gates=len(outages) + 1)
    for gate, (outage, seconds) in enumerate(outages, 1):
        line.at_gate(gate)
        with outage:
            end = time.monotonic() + seconds
            line.open_gate(gate)
            line.at_gate(gate + 1)  # the job goes on while nobody hears it
            until(lambda end=end: time.monotonic() > end, LONG)  # type: ignore[misc]
    line.open_gate(len(outages) + 1)
    line.ran_once(job)
    missing, doubled = compare(line.crucible.log(job).decode().splitlines(), scale.lines)
    assert (missing, doubled) == (0, 0)
    record("agent partition", lines=scale.lines, lost=missing, doubled=doubled)


def test_over_a_noisy_line_all_arrives_once(line: Line, scale: Scale, record: Record) -> None:
    line.proxy.rules(*NOISE)
    job = line.print(scale.lines, pause=0.05)
    view = line.ran_once(job)
    missing, doubled = compare(line.crucible.log(job).decode().splitlines(), scale.lines)
    assert (missing, doubled) == (0, 0)
    (artifact,) = line.crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]
    (checkpoint,) = line.crucible.get(f"/api/v1/jobs/{job}/checkpoints")["items"]
    assert (artifact["sha256"], checkpoint["sha256"]) == (LARGE, LARGE), view
    met = line.proxy.counts()
    assert met["drop_answer"], met
    assert met["duplicate"], met
    assert met["cut_request"] + met["cut_answer"] + met["truncate"], met
    faults = sum(met[fault.value] for fault in Fault)
    record("agent partition", lines=scale.lines, lost=missing, doubled=doubled, faults=faults)


def test_machines_claimed_over_a_noisy_line_run_their_jobs_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with (
        fault_proxy("http://127.0.0.1:1", *NOISE) as proxy,
        rehearsed(tmp_path, {"CRUCIBLE_AGENTS_URL": proxy.url}, speed=20.0) as world,
    ):
        Line(world.crucible, proxy, tmp_path).start()
        jobs = [world.submit(shell(f"mkdir '{runs}'/$CRUCIBLE_ATTEMPT_ID && echo once")) for _ in range(8)]
        for job in jobs:
            view = world.crucible.wait(job, LONG)
            assert (view["status"], view["attempt"]) == ("completed", 1), view["reason"]
            assert world.crucible.log(job) == b"once\n"
        assert len(list(runs.iterdir())) == len(jobs)
        world.nothing_lives()
        assert len(world.cloud.census()) == len(jobs), "no machine was given up"


def compare(lines: list[str], expected: int) -> tuple[int, int]:
    """How many lines are missing, and how many came twice. What came is in order."""
    numbers = [int(line.removeprefix("line ")) for line in lines]
    assert numbers == sorted(numbers)
    return expected - len(set(numbers)), len(numbers) - len(set(numbers))
