from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.agent.agents_server import AgentsServer
from tests.agent.sessions.callers import Callers


@pytest.fixture
def callers(control: AgentsServer) -> Iterator[Callers]:
    callers = Callers(control)
    yield callers
    callers.close()
