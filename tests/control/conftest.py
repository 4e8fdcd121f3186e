from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.authorisation.populated_app import PopulatedApp, populate
from tests.control import harness as control_harness
from tests.control.fakes import FakeBackend, FakePost
from tests.control.harness import ControlHarness, give_back, make_harness
from tests.control.hooks.harness import HookHarness
from tests.postgres import Server, postgres_server, postgres_url

from crucible.analysis import AnalysisWorker
from crucible.control.db.postgres.database import PostgresDb
from crucible.control.planning.profiles import Profiles

__all__ = ["postgres_server", "postgres_url"]

OWN_WORKER = vars(Profiles)["_worker"]
EVERYBODYS = frozenset({"database", "shared_worker"})
"""Fixtures that every test has, whether it uses a database or not."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On another database, deselect tests that do not use one, because they would only repeat the same result."""
    if config.getoption("--database", "sqlite") == "sqlite":
        return
    given = [vars(plugin) for plugin in config.pluginmanager.get_plugins() if _provides_harnesses(plugin)]
    fixtures = {name for names in given for name in names} - EVERYBODYS
    left_out = {item for item in items if not _on_a_database(item, fixtures)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _provides_harnesses(plugin: object) -> bool:
    path = Path(getattr(plugin, "__file__", None) or "")
    return path.name == "conftest.py" and _uses_harness(str(getattr(plugin, "__name__", "")))


def _on_a_database(item: pytest.Item, fixtures: set[str]) -> bool:
    module = item.getparent(pytest.Module)
    return module is None or bool(fixtures & set(item.fixturenames)) or _uses_harness(module.obj.__name__)  # type: ignore[attr-defined]


@cache
def _uses_harness(module: str) -> bool:
    """Return whether a test module imports anything from the harness, directly or indirectly."""
    if module == control_harness.__name__:
        return True
    given = vars(sys.modules[module]).values() if module in sys.modules else ()
    owners = {str(getattr(value, "__module__", None) or getattr(value, "__name__", "")) for value in given}
    others = {name for name in owners if name.startswith("tests.") and name != module}
    return any(_uses_harness(name) for name in others)


class ReusableDb(PostgresDb):
    """A PostgreSQL database in virtual time that is reused after it was closed, because creating one takes long."""

    def __init__(self, url: str) -> None:
        super().__init__(url, server_clock=False)
        self.url = url

    def reopened(self) -> ReusableDb:
        return ReusableDb(self.url)


@pytest.fixture(scope="session", autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `pytest tests/control --database postgres` every harness runs on a real server, still in virtual time."""
    if request.config.getoption("--database", "sqlite") == "sqlite":
        yield
        return
    server: Server = request.getfixturevalue("postgres_server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_harness, "new_database", lambda: ReusableDb(server.near_url(server.new_database())))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_worker() -> Iterator[None]:
    """One analysis worker for all control planes, because starting one takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch, AnalysisWorker() as worker:
        patch.setattr(Profiles, "_worker", worker)
        yield


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each control plane of the test start and end its own analysis worker."""
    monkeypatch.setattr(Profiles, "_worker", OWN_WORKER)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    harness = await make_harness(tmp_path)
    yield harness
    await give_back(harness.ports.db)


@pytest.fixture
async def two_backends(tmp_path: Path) -> AsyncIterator[ControlHarness]:
    """A harness with a second counted backend, called `ssh`."""
    harness = await make_harness(tmp_path, FakeBackend("ssh"))
    yield harness
    await give_back(harness.ports.db)


@pytest.fixture
async def populated_app(harness: ControlHarness) -> PopulatedApp:
    """A real control plane with two projects and users."""
    return await populate(harness)


@pytest.fixture
def hook_harness(harness: ControlHarness) -> HookHarness:
    """A harness with the transport of its hooks."""
    assert isinstance(harness.deployment.post, FakePost)
    return HookHarness(harness, harness.deployment.post)
