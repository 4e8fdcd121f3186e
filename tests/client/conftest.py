from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.fake_server import TOKEN, FakeServer, serving

from crucible.client.api import Api
from crucible.client.transport import Endpoint
from crucible.core.secret import Secret


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as fake:
        yield fake


@pytest.fixture
def api(server: FakeServer) -> Iterator[Api]:
    found = Api(Endpoint(server.url, Secret(TOKEN)), seconds=10)
    yield found
    found.close()
