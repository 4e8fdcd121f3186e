"""The server is killed between a call to the cloud and its record; no machine is forgotten, none runs a job twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.crash_scenarios import CrashScenarios, begun
from tests.faults.crash_sweep import judge, swept
from tests.faults.dying_server import DyingServer
from tests.faults.rehearsal_deployment import LONG, SMALL, RehearsalDeployment, rehearsed
from tests.harness import shell, until
from tests.scale import Record, Scale

FAULTS = {"list_lag": 2, "shutdown_seconds": 0.3}
LAUNCH = ["launch.before_call", "launch.after_call", "launch.recorded"]
"""Reached again with a cloud that ignores the tokens of launches."""


@pytest.mark.timeout(900)
def test_every_point_on_a_cloud(tmp_path: Path, scale: Scale, record: Record) -> None:
    judge(record, "rehearsal", scale.sweeps, swept(tmp_path, scale.sweeps, tell))


def tell(folder: Path, points: list[str]) -> None:
    with rehearsed(folder) as world:
        world.cloud.faults(**FAULTS)
        server = DyingServer(world.crucible, [*points, *LAUNCH])
        scenarios = CrashScenarios(server, folder, backend="rehearsal", resources=SMALL)
        while (point := server.armed) is not None:
            world.cloud.faults(tokens_honoured=len(server.reached) < len(points))
            scenarios.lead_to(point)
        scenarios.none_is_missing()
        _nothing_leaks(world, scenarios)


def _nothing_leaks(world: RehearsalDeployment, scenarios: CrashScenarios) -> None:
    """Every instance was an attempt's own machine, none lives, and what they cost is in our books."""
    launched = {instance["tags"]["crucible-machine"] for instance in world.cloud.census().values()}
    wanted = [attempt["machine"] for view in scenarios.ends for attempt in view["attempts"]]
    used = [attempt["machine"] for view in scenarios.ends for attempt in begun(view)]
    assert len(set(wanted)) == len(wanted)
    assert set(used) <= launched <= set(wanted)
    world.nothing_lives()
    world.bills_agree()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RehearsalDeployment]:
    with rehearsed(tmp_path) as world:
        world.cloud.faults(**FAULTS)
        yield world


@pytest.mark.parametrize("honoured", [True, False], ids=["tokens honoured", "tokens ignored"])
def test_a_launch_that_nobody_wants_any_more_is_found_and_ended(world: RehearsalDeployment, honoured: bool) -> None:
    """Its answer was lost, and the job is cancelled before anybody knows of the machine."""
    world.cloud.faults(tokens_honoured=honoured, lost_answers=1, boot_seconds=5)
    world.crucible.start()
    job = world.submit(shell("sleep 600"))
    until(lambda: world.alive(), LONG, "a machine that we do not know of")
    world.crucible.cancel(job)
    assert world.crucible.wait(job, LONG)["status"] == "cancelled"
    world.cloud.faults(lost_answers=0)
    until(lambda: not world.alive(), LONG, "it to be found and ended")
    assert {i["cause"] for i in world.cloud.census().values()} <= {"user_initiated", "instance_shutdown"}
