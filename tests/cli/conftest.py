from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.client import real_server
from tests.client.real_server import RealServer
from tests.control.conftest import shared_worker
from tests.control.fakes import FakeBackend
from tests.server.app import TOKEN

from crucible import __version__
from crucible.cli.main import run
from crucible.wire.process import start_time

__all__ = ["shared_worker"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Run a command line in its own folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRUCIBLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def invoke(*arguments: str) -> Ran:
        capfd.readouterr()
        code = run(arguments)
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    """Backends of the server besides this computer."""
    return ()


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backends: tuple[FakeBackend, ...]) -> Iterator[RealServer]:
    """A server that the command line uses."""
    with real_server.serving(tmp_path / "server", *backends) as server:
        monkeypatch.setenv("CRUCIBLE_SERVER", server.url)
        monkeypatch.setenv("CRUCIBLE_TOKEN", TOKEN)
        yield server


@pytest.fixture
def our_server(real: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    """The same server as the embedded server of the state folder, with a process that can be ended."""
    monkeypatch.delenv("CRUCIBLE_SERVER")
    monkeypatch.delenv("CRUCIBLE_TOKEN")
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text(TOKEN)
    said = {"url": real.url, "pid": child.pid, "start_time": start_time(child.pid), "version": __version__}
    (home / "server.json").write_text(json.dumps({**said, "nonce": "n-1"}))
    real.on_stop = child.kill
    yield real
    child.kill()
    child.communicate(timeout=10)
