from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.rehearsal.place import AT_ONCE, Cloud, RehearsalHarness

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(scope="session")
def steady_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield one cloud for many tests, whose clock runs at normal speed."""
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
    """Yield the shared cloud, reset, without faults and delays."""
    steady_cloud.reset()
    yield steady_cloud
    steady_cloud.reset()


@pytest.fixture
def own_cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud that a test may kill."""
    made = Cloud(tmp_path / "cloud")
    made.faults(**AT_ONCE)
    yield made
    made.clean()


@pytest.fixture
def harness(tmp_path: Path, fast_cloud: Cloud) -> Iterator[RehearsalHarness]:
    made = RehearsalHarness(tmp_path, fast_cloud)
    yield made
    made.clean()
