"""One real deployment per module: its server starts once, and its jobs differ by ID."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.terminal import Terminal
from tests.fork_server import COMMAND, SERVER, ForkServer
from tests.harness import Deployment

SECRET = "a-value-that-no-job-may-see"
SHOWN = 4000


@pytest.fixture(scope="session", autouse=True)
def fork_servers() -> Iterator[None]:
    """Fork the servers that a test starts, and the commands that it runs to their end.

    Commands that it talks to are new interpreters, and so are the servers that commands start.
    """
    with pytest.MonkeyPatch.context() as patch, ForkServer(COMMAND) as commands, ForkServer(SERVER) as servers:
        patch.setattr(Deployment, "commands", commands)
        patch.setattr(Deployment, "fork_server", servers)
        yield


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every command and server of the test as a new interpreter."""
    monkeypatch.setattr(Deployment, "commands", None)
    monkeypatch.setattr(Deployment, "fork_server", None)


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
    """A user's terminal on a state folder of its own, with a server as an earlier command left it.

    What a command does that finds none is shown where somebody is new, and where a server was stopped or killed.
    """
    with Terminal(tmp_path_factory.mktemp("terminal")) as terminal:
        terminal.crucible.start()
        yield terminal


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the last log lines of server and hosts to a failed test's report."""
    report = yield
    found = getattr(item, "funcargs", {}).get("crucible")
    if report.failed and isinstance(found, Deployment):  # type: ignore[attr-defined]
        for log in (found.home / "server.log", *found.home.glob("machines/*/host.log")):
            text = log.read_text(errors="replace")[-SHOWN:] if log.exists() else ""
            report.sections.append((str(log.relative_to(found.home)), text))  # type: ignore[attr-defined]
    return report
