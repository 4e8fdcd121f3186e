from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.rehearsal.place import AT_ONCE, Cloud, RehearsalPlace

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(scope="session")
def steady_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One process for many tests: its time is the test's."""
    made = Cloud(tmp_path_factory.mktemp("steady-cloud"), price_seconds=60)
    yield made
    made.clean()


@pytest.fixture(scope="session")
def fast_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("fast-cloud"), speed=20.0, price_seconds=60)
    yield made
    made.clean()


@pytest.fixture
def cloud(steady_cloud: Cloud) -> Iterator[Cloud]:
    """A cloud as new, without faults, in which nothing takes time."""
    steady_cloud.reset()
    yield steady_cloud
    steady_cloud.reset()


@pytest.fixture
def own_cloud(tmp_path: Path) -> Iterator[Cloud]:
    """For tests that kill it."""
    made = Cloud(tmp_path / "cloud")
    made.faults(**AT_ONCE)
    yield made
    made.clean()


@pytest.fixture
def place(tmp_path: Path, fast_cloud: Cloud) -> Iterator[RehearsalPlace]:
    made = RehearsalPlace(tmp_path, fast_cloud)
    yield made
    made.clean()
