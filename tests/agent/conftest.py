"""A control plane that a real agent talks to, and a machine with its host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.fake_control import FakeControl
from tests.agent.machines import Machine


@pytest.fixture
def control(tmp_path: Path) -> Iterator[FakeControl]:
    control = FakeControl(tmp_path)
    yield control
    control.down()


@pytest.fixture
def machine(tmp_path: Path, control: FakeControl) -> Iterator[Machine]:
    machine = Machine(tmp_path, control)
    machine.start_host()
    yield machine
    machine.close()
