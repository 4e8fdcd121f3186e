"""One real deployment per module: its server is started once and its jobs are told apart by their ids."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.terminal import Terminal
from tests.harness import Deployment
from tests.nursery import COMMAND, SERVER, Nursery

SECRET = "a-value-that-no-job-may-see"
SHOWN = 4000


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """Commands that are run to their end are forked; those that a test talks to are new interpreters."""
    with pytest.MonkeyPatch.context() as patch, Nursery(COMMAND) as made:
        patch.setattr(Deployment, "commands", made)
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[Nursery]:
    with Nursery(SERVER) as made:
        yield made


@pytest.fixture
def forked_servers(servers: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that kill theirs and start it again."""
    monkeypatch.setattr(Deployment, "nursery", servers)


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the test is started as users start it."""
    monkeypatch.setattr(Deployment, "commands", None)


@pytest.fixture(scope="module")
def crucible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment whose server has a secret of its own in its environment, and takes bundles up to 1 MiB.

    Its notifications may be sent to this computer.
    """
    env = {"SERVER_SECRET": SECRET, "CRUCIBLE_BUNDLE_LIMIT": "1M", "CRUCIBLE_WEBHOOK_HOSTS": "127.0.0.1"}
    with Deployment(tmp_path_factory.mktemp("deployment"), env) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A user's terminal on a state folder of its own; nothing runs until a command starts it."""
    with Terminal(tmp_path_factory.mktemp("terminal")) as terminal:
        yield terminal


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the last words of its server and hosts."""
    report = yield
    found = getattr(item, "funcargs", {}).get("crucible")
    if report.failed and isinstance(found, Deployment):  # type: ignore[attr-defined]
        for log in (found.home / "server.log", *found.home.glob("machines/*/host.log")):
            text = log.read_text(errors="replace")[-SHOWN:] if log.exists() else ""
            report.sections.append((str(log.relative_to(found.home)), text))  # type: ignore[attr-defined]
    return report
