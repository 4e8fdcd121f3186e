"""Fixtures: a control plane that a real agent connects to, and a machine with its host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.agents_server import AgentsServer
from tests.agent.real_machine import Machine
from tests.fork_server import HOST, ForkServer


@pytest.fixture
def control(tmp_path: Path) -> Iterator[AgentsServer]:
    control = AgentsServer(tmp_path)
    yield control
    control.close()


@pytest.fixture(scope="session")
def hosts() -> Iterator[None]:
    """Fork the hosts of all tests from one process, unless another Python is to run them."""
    if "AGENT_PYTHON" in os.environ:
        yield
        return
    with pytest.MonkeyPatch.context() as patch, ForkServer(HOST) as made:
        patch.setattr(Machine, "fork_server", made)
        yield


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch, hosts: None) -> None:
    """Start every host of the test in a new interpreter, as a backend does."""
    monkeypatch.setattr(Machine, "fork_server", None)


@pytest.fixture
def machine(tmp_path: Path, control: AgentsServer, hosts: None) -> Iterator[Machine]:
    machine = Machine(tmp_path, control)
    machine.start_host()
    yield machine
    machine.close()
