from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.control import world
from tests.control.fakes import FakeBackend
from tests.control.world import Rig, give_back, make_rig
from tests.postgres import Server, postgres_server, postgres_url

from crucible.control.db.postgres import PostgresDb

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture(scope="session", autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[None]:
    """`pytest tests/control --database postgres` runs every rig on a real server, in virtual time all the same."""
    if request.config.getoption("--database", "sqlite") == "sqlite":
        yield
        return
    server: Server = request.getfixturevalue("postgres_server")
    with ExitStack() as databases, pytest.MonkeyPatch.context() as patch:

        def new_database() -> PostgresDb:
            return PostgresDb(databases.enter_context(server.database()), server_clock=False)

        patch.setattr(world, "new_database", new_database)
        yield


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await make_rig(tmp_path)
    yield rig
    await give_back(rig.ports.db)


@pytest.fixture
async def two_places(tmp_path: Path) -> AsyncIterator[Rig]:
    """With a second counted place, called `ssh`."""
    rig = await make_rig(tmp_path, FakeBackend("ssh"))
    yield rig
    await give_back(rig.ports.db)
