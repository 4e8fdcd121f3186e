from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.authorisation.town import Town, found_town
from tests.control import world
from tests.control.fakes import FakeBackend, FakePost
from tests.control.hooks.wired import Wired
from tests.control.world import Rig, give_back, make_rig
from tests.postgres import Server, postgres_server, postgres_url

from crucible.analysis import AnalysisWorker
from crucible.control.db.postgres.database import PostgresDb
from crucible.control.planning.profiles import Profiles

__all__ = ["postgres_server", "postgres_url"]

OWN_WORKER = vars(Profiles)["_worker"]
EVERYBODYS = frozenset({"database", "shared_worker"})
"""Fixtures that every test has, whether it comes to a database or not."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On another database, without what cannot come to one: that shows there what it shows without."""
    if config.getoption("--database", "sqlite") == "sqlite":
        return
    given = [vars(plugin) for plugin in config.pluginmanager.get_plugins() if _gives_rigs(plugin)]
    fixtures = {name for names in given for name in names} - EVERYBODYS
    left_out = {item for item in items if not _on_a_database(item, fixtures)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _gives_rigs(plugin: object) -> bool:
    path = Path(getattr(plugin, "__file__", None) or "")
    return path.name == "conftest.py" and _comes_to_rigs(str(getattr(plugin, "__name__", "")))


def _on_a_database(item: pytest.Item, fixtures: set[str]) -> bool:
    module = item.getparent(pytest.Module)
    return module is None or bool(fixtures & set(item.fixturenames)) or _comes_to_rigs(module.obj.__name__)  # type: ignore[attr-defined]


@cache
def _comes_to_rigs(module: str) -> bool:
    """Whether the tests' module has anything from where rigs are made, or from another that has."""
    if module == world.__name__:
        return True
    given = vars(sys.modules[module]).values() if module in sys.modules else ()
    owners = {str(getattr(value, "__module__", None) or getattr(value, "__name__", "")) for value in given}
    others = {name for name in owners if name.startswith("tests.") and name != module}
    return any(_comes_to_rigs(name) for name in others)


class KeptDb(PostgresDb):
    """In virtual time, on a database that is used again though it was closed: to make one takes longer."""

    def __init__(self, url: str) -> None:
        super().__init__(url, server_clock=False)
        self.url = url

    def reopened(self) -> KeptDb:
        return KeptDb(self.url)


@pytest.fixture(scope="session", autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[None]:
    """`pytest tests/control --database postgres` runs every rig on a real server, in virtual time all the same."""
    if request.config.getoption("--database", "sqlite") == "sqlite":
        yield
        return
    server: Server = request.getfixturevalue("postgres_server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "new_database", lambda: KeptDb(server.near_url(server.new_database())))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_worker() -> Iterator[None]:
    """One process that reads programs for all control planes: to start one takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch, AnalysisWorker() as worker:
        patch.setattr(Profiles, "_worker", worker)
        yield


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each control plane of the test starts a process of its own, and ends it."""
    monkeypatch.setattr(Profiles, "_worker", OWN_WORKER)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await make_rig(tmp_path)
    yield rig
    await give_back(rig.ports.db)


@pytest.fixture
async def two_backends(tmp_path: Path) -> AsyncIterator[Rig]:
    """With a second counted backend, called `ssh`."""
    rig = await make_rig(tmp_path, FakeBackend("ssh"))
    yield rig
    await give_back(rig.ports.db)


@pytest.fixture
async def town(rig: Rig) -> Town:
    """A real control plane with two projects and people in them."""
    return await found_town(rig)


@pytest.fixture
def wired(rig: Rig) -> Wired:
    """A rig with hooks on it, and the transport that they are called by."""
    assert isinstance(rig.deployment.post, FakePost)
    return Wired(rig, rig.deployment.post)
