"""What every test gets: no network, and none of the user's own settings or state."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings
from pytest_socket import socket_allow_hosts
from tests.scale import add_options, record, scale

__all__ = ["record", "scale"]

TESTS = Path(__file__).parent
WITH_SOCKETS = (f"{TESTS / 'e2e'}/", f"{TESTS / 'faults'}/")
LOOPBACK = ["127.0.0.1", "::1"]
LONGEST_ID = 1_000
SELDOM = 700, 10, 100
"""Of the garbage collector: it looks at everything a tenth as often as by default, which took a tenth of the time."""

# Who starts the tests in the background of a script has them ignore Ctrl-C, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Libraries ask for these at every request, and Python looks through all its folders each time: now it knows.
for absent in ("httpx", "sniffio"):
    if find_spec(absent) is None:
        sys.modules[absent] = None  # type: ignore[assignment]

# A busy machine is slow at random; a slow example is not a wrong one.
settings.register_profile("crucible", deadline=None)
settings.load_profile("crucible")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    parser.addoption("--database", choices=["sqlite", "postgres"], default="sqlite", help="what rigs run on")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests live to the end: the garbage collector need not look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*SELDOM)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # pytest tells it to every process that a test starts, in a variable, for which there is little room.
        assert len(item.nodeid) < LONGEST_ID, f"{item.nodeid[:100]}… needs a shorter id"
        if str(item.path).startswith(WITH_SOCKETS):
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(autouse=True)
def loopback_only(request: pytest.FixtureRequest) -> None:
    """`enable_socket` opens the loopback and nothing else."""
    if request.node.get_closest_marker("enable_socket"):
        socket_allow_hosts(LOOPBACK, allow_unix_socket=True)


@pytest.fixture(scope="session", autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No `CRUCIBLE_*` variable of the caller counts, and the default state folder is a temporary one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CRUCIBLE_")]:
            patch.delenv(name)
        patch.setenv("CRUCIBLE_HOME", str(tmp_path_factory.mktemp("crucible-home")))
        yield
