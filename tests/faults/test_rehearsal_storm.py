"""A hundred jobs through a cloud at its worst: each ends once, no machine is left, and the money agrees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.faults.rehearsed import Rehearsed, rehearsed
from tests.harness import View, shell, until

pytestmark = pytest.mark.timeout(900)

JOBS = 100
AT_ONCE = 12
SPEED = 20.0
STORM_SECONDS = 600.0
CHAOS = {
    "lost_answers": 0.2,
    "terminate_errors": 0.15,
    "throttled": 0.04,
    "unavailable": 0.04,
    "list_lag": 2 * SPEED,
    "boot_seconds": 0.2 * SPEED,
    "shutdown_seconds": 0.3 * SPEED,
}


@pytest.mark.parametrize("honoured", [True, False], ids=["tokens honoured", "tokens ignored"])
def test_a_hundred_launches_leave_nothing_alive(tmp_path: Path, honoured: bool) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with rehearsed(tmp_path, speed=SPEED, price_seconds=60) as world:
        world.crucible.start()
        world.cloud.faults(**CHAOS, tokens_honoured=honoured)
        jobs = storm(world, runs)
        world.nothing_lives()
        each_ran_once(world, runs, jobs)
        made = Counter(i["tags"]["crucible-machine"] for i in world.cloud.census().values())
        assert len(made) >= JOBS
        assert (max(made.values()) > 1) is not honoured, "tokens decide whether a lost answer makes a second machine"
        world.cloud.call("DELETE", "/admin/faults")
        billed = world.bills_agree()
        assert sum(billed.values()) == world.cloud.call("GET", "/v1/bill")["total_micro_dollars"]
        costs = {job: world.crucible.job(job)["cost"]["micros"] for job in jobs}
        assert sum(costs.values()) == sum(billed.values())


def storm(world: Rehearsed, runs: Path) -> dict[str, View]:
    """All jobs, a dozen at a time; each as it is when all are over."""
    jobs: list[str] = []

    def turn() -> bool:
        active = len(world.crucible.get("/api/v1/jobs", active=True, limit=JOBS)["items"])
        for number in range(len(jobs), min(len(jobs) + AT_ONCE - active, JOBS)):
            jobs.append(world.submit(program(runs), market="spot" if number % 2 else "on_demand"))
        return len(jobs) == JOBS and not active

    until(turn, STORM_SECONDS, f"{JOBS} jobs to end")
    return {job: world.crucible.job(job) for job in jobs}


def program(runs: Path) -> View:
    """Notes who runs it. A folder can be made once: a second runner of the attempt would be seen."""
    mine = f"'{runs}'/$CRUCIBLE_ATTEMPT_ID"
    return shell(f"mkdir {mine} || touch {mine}.double; echo begin >> {mine}/log; echo end >> {mine}/log")


def each_ran_once(world: Rehearsed, runs: Path, jobs: dict[str, View]) -> None:
    assert {view["status"] for view in jobs.values()} == {"completed"}, [v["reason"] for v in jobs.values()]
    assert list(runs.glob("*.double")) == []
    for view in jobs.values():
        ran = [a["id"] for a in view["attempts"] if (runs / a["id"]).exists()]
        assert ran == [view["attempts"][-1]["id"]]
        assert (runs / ran[0] / "log").read_text() == "begin\nend\n"
