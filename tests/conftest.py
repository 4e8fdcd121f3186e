"""Fixtures of every test: no network, and none of the user's settings or state."""

from __future__ import annotations

import os
import signal
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pytest_socket import socket_allow_hosts
from tests.scale import add_options, record, scale

__all__ = ["record", "scale"]

TESTS = Path(__file__).parent
SUITES = {
    "agent": ["agent"],
    "hostile": ["hostile"],
    "stores": ["storage"],
    "simulation": ["simulation"],
    "ssh": ["ssh"],
    "templates": ["templates/nanogpt", "analysis/oracle"],
    "e2e": ["e2e"],
    "faults": ["faults"],
}
"""Folders of each suite, which is also a marker. Other tests are `unit`."""
WITH_SOCKETS = ("e2e", "faults", "ssh")
LOOPBACK = ["127.0.0.1", "::1"]
LONGEST_ID = 1_000

pytest.register_assert_rewrite("tests.backends.conformance")

# Who starts the tests in the background of a script has them ignore Ctrl-C, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is slow at random; a slow example is not a wrong one.
settings.register_profile("crucible", deadline=None)
settings.load_profile("crucible")


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python interpreter without packages."""
    folder = tmp_path_factory.mktemp("bare-python")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    parser.addoption("--database", choices=["sqlite", "postgres"], default="sqlite", help="what rigs run on")


def suite_of(path: Path) -> str:
    """Return the suite that a file or folder belongs to."""
    found = (name for name, folders in SUITES.items() if any(path.is_relative_to(TESTS / folder) for folder in folders))
    return next(found, "unit")


def pytest_configure(config: pytest.Config) -> None:
    for name in (*SUITES, "unit"):
        config.addinivalue_line("markers", f"{name}: a suite of `make test`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the folders of other suites if `-m` begins with a suite, because collecting all of them takes long."""
    wanted = config.option.markexpr.split(" ")[0]
    if wanted not in (*SUITES, "unit") or collection_path.name == "__pycache__":
        return None
    inside = [TESTS / folder for folder in SUITES.get(wanted, ["."])]
    on_the_way = any(folder.is_relative_to(collection_path) for folder in inside)
    return True if not on_the_way and suite_of(collection_path) != wanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        suite = suite_of(item.path)
        item.add_marker(suite)
        # pytest tells it to every process that a test starts, in a variable, for which there is little room.
        assert len(item.nodeid) < LONGEST_ID, f"{item.nodeid[:100]}… needs a shorter id"
        if suite in WITH_SOCKETS:
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(autouse=True)
def loopback_only(request: pytest.FixtureRequest) -> None:
    """Let `enable_socket` allow loopback connections only."""
    if request.node.get_closest_marker("enable_socket"):
        socket_allow_hosts(LOOPBACK, allow_unix_socket=True)


@pytest.fixture(scope="session", autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ignore the caller's `CRUCIBLE_*` variables, and use a temporary default state folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CRUCIBLE_")]:
            patch.delenv(name)
        patch.setenv("CRUCIBLE_HOME", str(tmp_path_factory.mktemp("crucible-home")))
        yield
