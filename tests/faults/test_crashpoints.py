"""The server is killed at every border between a commit and an effect; the next start mends it all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.mortal import SECONDS, Mortal
from tests.faults.stories import Stories
from tests.faults.sweep import judge, swept
from tests.harness import Deployment
from tests.scale import Record, Scale


@pytest.mark.timeout(900)
def test_every_point_on_this_computer(tmp_path: Path, scale: Scale, record: Record) -> None:
    judge(record, "local", scale.sweeps, swept(tmp_path, scale.sweeps, tell))


def tell(folder: Path, points: list[str]) -> None:
    crucible = Deployment(folder)
    try:
        stories = Stories(Mortal(crucible, points), folder)
        stories.new_machine = ("effect.", "launch.", "claim.")  # its host stays for all jobs
        stories.instead("terminate.", stories.stopped)
        while (point := stories.mortal.armed) is not None:
            stories.lead_to(point)
        stories.none_is_missing()
        crucible.nothing_left(SECONDS)
    finally:
        crucible.close()
