"""What fault tests share: a deployment of their own, and a bound on their time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fork_server import SERVER, ForkServer
from tests.harness import Deployment

SECONDS = 240
"""Longest a test may take, however busy the machine."""
LONG_SECONDS = 4 * 3600
"""Longest when it does more than a test does."""


LONGEST = ("crashpoints", "rehearsal_crashes", "nanogpt_survives", "rehearsal_storm", "kill9", "postgres_restarts")
"""Files that begin first, so that no worker is left alone with one at the end."""


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
    """Servers are forked, except where more is proved than a test proves."""
    if request.config.getoption("--scale") != "test":
        yield
        return
    with pytest.MonkeyPatch.context() as patch, ForkServer(SERVER) as made:
        patch.setattr(Deployment, "fork_server", made)
        yield


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server of the test is started as users start it."""
    monkeypatch.setattr(Deployment, "fork_server", None)


@pytest.fixture
def crucible(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as deployment:
        yield deployment
