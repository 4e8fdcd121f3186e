"""What fault tests share: a deployment of their own, and how often to kill it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Deployment

KILLS = 10
SECONDS = 240
"""Longest a test may take, however busy the machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS, help="how often test_kill9 kills the server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS + 15 * _kills(config)))


def _kills(config: pytest.Config) -> int:
    # In a run of the whole tree this file is read after the command line.
    return int(config.getoption("--kills", KILLS))


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return _kills(request.config)


@pytest.fixture
def crucible(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as deployment:
        yield deployment
