"""The server is killed at every border between a commit and an effect; the next start mends it all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.crash_scenarios import CrashScenarios
from tests.faults.crash_sweep import judge, swept
from tests.faults.dying_server import SECONDS, DyingServer
from tests.harness import Deployment
from tests.scale import Record, Scale


@pytest.mark.timeout(900)
def test_every_point_on_this_computer(tmp_path: Path, scale: Scale, record: Record) -> None:
    judge(record, "local", scale.sweeps, swept(tmp_path, scale.sweeps, tell))


def tell(folder: Path, points: list[str]) -> None:
    crucible = Deployment(folder)
    try:
        scenarios = CrashScenarios(DyingServer(crucible, points), folder)
        scenarios.new_machine = ("effect.", "launch.", "claim.")  # its host stays for all jobs
        scenarios.instead("terminate.", scenarios.stopped)
        while (point := scenarios.server.armed) is not None:
            scenarios.lead_to(point)
        scenarios.none_is_missing()
        crucible.nothing_left(SECONDS)
    finally:
        crucible.close()
