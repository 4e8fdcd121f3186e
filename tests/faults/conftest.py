"""Fixtures of fault tests: a deployment per test, and longer timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fork_server import SERVER, ForkServer
from tests.harness import Deployment

SECONDS = 240
"""Timeout of a test on a busy machine, in seconds."""
LONG_SECONDS = 4 * 3600
"""Timeout at a scale above that of `make test`, in seconds."""


LONGEST = ("crashpoints", "rehearsal_crashes", "nanogpt_survives", "rehearsal_storm", "kill9", "postgres_restarts")
"""Files to start first, so that no worker runs one alone at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONGEST)
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if config.getoption("--scale") != "test":
            item.add_marker(pytest.mark.timeout(LONG_SECONDS), append=False)
        elif not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session", autouse=True)
def fork_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fork servers, except at a scale above that of `make test`."""
    if request.config.getoption("--scale") != "test":
        yield
        return
    with pytest.MonkeyPatch.context() as patch, ForkServer(SERVER) as made:
        patch.setattr(Deployment, "fork_server", made)
        yield


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every server of the test as a new interpreter."""
    monkeypatch.setattr(Deployment, "fork_server", None)


@pytest.fixture
def crucible(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as deployment:
        yield deployment
