"""Launches over the worst line to a cloud: each job runs once or is cancelled, no machine is left, the money agrees."""

from __future__ import annotations

import fcntl
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.proxy import Fault, FaultProxy, Rule, fault_proxy, storm
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, rehearsed
from tests.harness import View, shell, until
from tests.scale import Record, Scale

pytestmark = pytest.mark.timeout(900)

AT_ONCE = 32
SPEED = 20.0
LOOK_SECONDS = 0.25
SECONDS_A_LAUNCH = 6.0
CREATE, TERMINATE, ANY = "POST /v1/instances", "DELETE /v1/instances", "[A-Z]+ /v1/"

LINE = (
    Rule(Fault.DELAY, 0.2, ANY, seconds=0.4),
    Rule(Fault.DROP_ANSWER, 0.2, CREATE),
    Rule(Fault.CUT_REQUEST, 0.02, CREATE),
    Rule(Fault.DUPLICATE, 0.03, CREATE),
    Rule(Fault.BUSY, 0.12, TERMINATE, status=500),
    Rule(Fault.DROP_ANSWER, 0.03, TERMINATE),
    Rule(Fault.TRUNCATE, 0.03, ANY),
    Rule(Fault.CUT_ANSWER, 0.01, ANY),
    *storm(0.04, ANY),
)
STORM = (*storm(0.6, ANY), *LINE)
CALM_CALLS, STORM_CALLS = 150, 40
"""By turns: so many calls over the line as it is, so many through a storm."""
CLOUD = {"list_lag": 2 * SPEED, "boot_seconds": 2 * SPEED, "shutdown_seconds": 0.3 * SPEED}


@pytest.mark.parametrize("honoured", [True, False], ids=["tokens honoured", "tokens ignored"])
def test_launches_over_a_faulty_line_leave_nothing_alive(
    tmp_path: Path, honoured: bool, scale: Scale, record: Record
) -> None:
    """Half of the launches at a cloud that knows a token again, half at one that does not."""
    launches = scale.launches // 2
    with behind_a_line(tmp_path) as (world, line):
        world.cloud.faults(**CLOUD, tokens_honoured=honoured)
        work = Work(world, line, tmp_path, launches)
        work.be_done()
        line.rules(*LINE)  # nobody changes the weather from here on, and a storm would stay for good
        world.nothing_lives()
        work.check()
        made = Counter(i["tags"]["crucible-machine"] for i in world.cloud.census().values())
        assert len(made) >= launches
        assert (max(made.values()) > 1) is not honoured, "tokens decide whether a lost answer makes a second machine"
        met = line.counts()
        assert met["drop_answer POST"] > launches / 20, met  # a fifth of the calls, some of which storms refuse first
        assert work.storms > 0
        line.rules()
        money_agrees(world, work)
        record(
            "fault proxy before each provider's API",
            backend=f"rehearsal, tokens {'honoured' if honoured else 'ignored'}",
            launches=len(made),
            alive=len(world.alive()),
            calls=met["requests"],
            faults=sum(met[fault.value] for fault in Fault),
            ambiguous_creates=met["drop_answer POST"],
        )
        assert not (tmp_path / "front" / "cloud.db").exists(), "it spoke with the one cloud that there is"


@contextmanager
def behind_a_line(folder: Path) -> Iterator[tuple[RehearsalDeployment, FaultProxy]]:
    """A deployment that knows its cloud by an address that leads through the line."""
    front = folder / "front"
    front.mkdir()
    env = {"CRUCIBLE_REHEARSAL_STATE": str(front)}
    with (
        open(front / "lock", "w") as lock,
        fault_proxy("http://127.0.0.1:1", *LINE) as line,
        rehearsed(folder, env, speed=SPEED, price_seconds=60) as world,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # the server would start a cloud there if this one answered too late
        line.aim(world.cloud.address.url)
        told = json.loads((world.cloud.state / "cloud.json").read_text())
        (front / "cloud.json").write_text(json.dumps({**told, "url": line.url}))
        world.crucible.start(seconds=LONG)
        yield world, line


class Work:
    """Jobs, some at a time. Two of five are cancelled as soon as the cloud has a machine for them."""

    def __init__(self, world: RehearsalDeployment, line: FaultProxy, folder: Path, launches: int) -> None:
        self.jobs: list[str] = []
        self._world = world
        self._line = line
        self._launches = launches
        self._unwanted: set[str] = set()
        self._cancelled: set[str] = set()
        self._stormy = False
        self.storms = 0
        self._runs = folder / "runs"
        self._runs.mkdir()

    def be_done(self) -> None:
        until(self._turn, 60 + SECONDS_A_LAUNCH * self._launches, f"{self._launches} jobs to end")

    def check(self) -> None:
        """Each ran once, in its last attempt; what was cancelled ran once at most."""
        assert list(self._runs.glob("*.double")) == []
        for job in self.jobs:
            view = self._world.crucible.job(job)
            ran = [a["id"] for a in view["attempts"] if (self._runs / a["id"]).exists()]
            if job in self._cancelled:
                assert view["status"] == "cancelled", view["reason"]
                assert ran in ([], [view["attempts"][-1]["id"]])
            else:
                assert view["status"] == "completed", view["reason"]
                assert ran == [view["attempts"][-1]["id"]]
                assert (self._runs / ran[0] / "log").read_text() == "begin\nend\n"

    def _turn(self) -> bool:
        time.sleep(LOOK_SECONDS)  # looking costs the server as much as a job does
        self._weather()
        active = self._world.crucible.get("/api/v1/jobs", active=True, limit=AT_ONCE)["items"]
        self._cancel(active)
        for _ in range(min(AT_ONCE - len(active), self._launches - len(self.jobs))):
            self._submit(len(self.jobs))
            active.append({})
        return not active

    def _weather(self) -> None:
        """Changes by calls made, not by time: a slow run meets as many faults as a fast one."""
        stormy = self._line.counts()["requests"] % (CALM_CALLS + STORM_CALLS) >= CALM_CALLS
        if stormy is not self._stormy:
            self._stormy = stormy
            self.storms += stormy
            self._line.rules(*(STORM if stormy else LINE))

    def _submit(self, number: int) -> None:
        unwanted = number % 5 in (1, 2)
        spec = program(self._runs, "exec sleep 1000" if unwanted else "echo end")
        self.jobs.append(self._world.submit(spec, market="spot" if number % 2 else "on_demand"))
        if unwanted:
            self._unwanted.add(self.jobs[-1])

    def _cancel(self, active: list[View]) -> None:
        made = {instance["tags"]["crucible-machine"] for instance in self._world.cloud.alive()}
        for view in active:
            machines = {attempt["machine"] for attempt in view["attempts"]}
            if view["id"] in self._unwanted - self._cancelled and machines & made:
                self._world.crucible.cancel(view["id"])
                self._cancelled.add(view["id"])


def program(runs: Path, end: str) -> View:
    """Notes who runs it. A folder can be made once: a second runner of the attempt would be seen."""
    mine = f"'{runs}'/$CRUCIBLE_ATTEMPT_ID"
    return shell(f"mkdir {mine} || touch {mine}.double; echo begin >> {mine}/log; {end} >> {mine}/log", grace_seconds=5)


def money_agrees(world: RehearsalDeployment, work: Work) -> None:
    """The cloud's bill, our ledger and what the jobs are said to have cost."""
    billed = sum(world.bills_agree().values())
    assert billed == world.cloud.call("GET", "/v1/bill")["total_micro_dollars"]
    assert billed == sum(world.crucible.job(job)["cost"]["micros"] for job in work.jobs)
