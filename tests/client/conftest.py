from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client import real_server
from tests.client.real_server import RealServer
from tests.control.conftest import shared_worker
from tests.control.fakes import FakeBackend
from tests.server.app import TOKEN

from crucible.client.api import Api
from crucible.client.transport.http import Endpoint
from crucible.core.secret import Secret

__all__ = ["shared_worker"]


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    """What the server has beside this computer."""
    return ()


@pytest.fixture
def real(tmp_path: Path, backends: tuple[FakeBackend, ...]) -> Iterator[RealServer]:
    with real_server.serving(tmp_path / "server", *backends) as server:
        yield server


@pytest.fixture
def real_api(real: RealServer) -> Iterator[Api]:
    found = Api(Endpoint(real.url, Secret(TOKEN)), seconds=10)
    yield found
    found.close()
