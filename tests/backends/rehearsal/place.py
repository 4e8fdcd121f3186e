"""The simulated cloud under test: a real process, called over HTTP and killed after the test."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from tests.backends.agent_listener import agent_route, listening
from tests.backends.conformance import BackendHarness, eventually, launch_one

from crucible.backends.base import LaunchCall, LaunchUnknown, MachineRef
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
from crucible.backends.rehearsal import Address, RehearsalBackend, start_cloud, stop_cloud
from crucible.backends.rehearsal.connection import Connection, ErrorAnswer
from crucible.backends.rehearsal.settings import RehearsalSettings
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.http.client import BaseUrl, HttpClient, NotConnected, Request, Response

View = dict[str, Any]
ZONE = "simulated-north-a"
AT_ONCE = {"boot_seconds": 0, "shutdown_seconds": 0}
WAIT = "exec sleep 600"


class Cloud:
    """A running cloud. `speed`: the factor by which its time runs faster than the test's."""

    def __init__(self, state: Path, **options: Any) -> None:
        self.state = state
        self._options = options
        self.address = start_cloud(state, **options)
        self.connection = Connection(state, seconds=30)

    def call(self, method: str, path: str, body: View | None = None, **query: str) -> View:
        return self.connection.call(method, path, body, query)

    def faults(self, **wishes: Any) -> None:
        self.call("PATCH", "/admin/faults", wishes)

    def create(self, user_data: str = WAIT, **wishes: Any) -> View:
        body = {"zone": ZONE, "type": "sim.c2", "user_data": user_data, **wishes}
        return self._instance(self.call("POST", "/v1/instances", body))

    def show(self, id: str) -> View:
        return self._instance(self.call("GET", f"/v1/instances/{id}"))

    def terminate(self, id: str) -> View:
        return self._instance(self.call("DELETE", f"/v1/instances/{id}"))

    def listed(self, **query: str) -> list[View]:
        found: list[View] = self.connection.call("GET", "/v1/instances", query=query)["instances"]  # type: ignore[assignment]
        return found

    def census(self) -> dict[str, View]:
        return {found["id"]: found for found in self.call("GET", "/admin/instances")["instances"]}

    def alive(self) -> list[View]:
        return [found for found in self.census().values() if found["state"] != "terminated"]

    def bill(self) -> dict[str, View]:
        return {line["instance"]: line for line in self.call("GET", "/v1/bill")["lines"]}

    def advance(self, seconds: float) -> None:
        self.call("POST", "/admin/advance", {"seconds": seconds})

    def running(self, user_data: str = WAIT, **wishes: Any) -> View:
        """Create an instance and return it once it runs."""
        id = self.create(user_data, **wishes)["id"]
        self.until(id, "running")
        return self.show(id)

    def until(self, id: str, state: str) -> None:
        eventually(lambda: bool(self.census()[id]["state"] == state))

    def refusal(self, method: str, path: str, body: View | None = None) -> tuple[int, str]:
        """Make a call that must be refused, and return its status and code."""
        try:
            self.call(method, path, body)
        except ErrorAnswer as error:
            return error.status, error.code
        raise AssertionError(f"{method} {path} was not refused")

    def folder(self, id: str) -> Path:
        return self.state / "machines" / id

    def kill9(self) -> None:
        """Kill the cloud and wait until its socket is closed: its last thread may outlive the first."""
        os.kill(self.address.pid, signal.SIGKILL)
        eventually(lambda: not _listens(self.address.url))

    def restart(self, **changes: Any) -> Address:
        self.address = start_cloud(self.state, **{**self._options, **changes})
        return self.address

    def reset(self) -> None:
        """Reset the cloud and remove all delays."""
        if not _runs(self.address.pid):
            self.restart()
        self.call("POST", "/admin/reset")
        self.faults(**AT_ONCE)

    def clean(self) -> None:
        if not _runs(self.address.pid):
            self.restart()
        stop_cloud(self.state)

    @staticmethod
    def _instance(answer: Mapping[str, object]) -> View:
        found = answer["instance"]
        assert isinstance(found, dict)
        return found


class RehearsalHarness(BackendHarness):
    halts = False

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        text = "import signal; signal.pause()\n"
        self.agent = AgentFile(folder / "agent.py", hashlib.sha256(text.encode()).hexdigest())
        self.agent.path.write_text(text)
        self._listening = listening({agent_route(self.agent): text.encode()})
        self.listener = self._listening.__enter__()
        (self.home / "agents.url").write_text(self.listener.url)
        self.cloud = cloud
        self.cloud.reset()

    def context(self, **changes: object) -> BackendContext[RehearsalSettings]:
        given = {
            "home": self.home,
            "agents_url_file": self.home / "agents.url",
            "agent_file": self.agent,
            "python": sys.executable,
            "environ": {"PATH": os.environ["PATH"], "SECRET": "hunter2"},
        }
        return BackendContext(RehearsalSettings(), **{**given, **changes})  # type: ignore[arg-type]

    def backend(self, **changes: object) -> RehearsalBackend:
        return RehearsalBackend(self.context(**changes), self.cloud.state, list_lag=0.0)

    def count(self, machine: str) -> int:
        """Return the cloud's count, once no process of an ended instance is left."""
        census = [i for i in self.cloud.census().values() if i["tags"].get("crucible-machine") == machine]
        for instance in census:
            assert instance["state"] != "terminated" or not processes_of(instance["id"])
        return sum(instance["state"] != "terminated" for instance in census)

    def crash_launch(self, call: LaunchCall) -> None:
        """Make the launch without ever getting its response."""
        self.cloud.faults(lost_answers=1)
        try:
            launch_one(self.backend(), call)
        except LaunchUnknown:
            self.cloud.faults(lost_answers=0)
        else:
            raise AssertionError("the answer was not lost")

    def cut_off(self) -> bool:
        self.cloud.kill9()
        return True

    def kill_host(self, ref: MachineRef) -> None:
        self.cloud.until(ref.native_id, "running")
        os.kill(self.cloud.census()[ref.native_id]["pid"], signal.SIGKILL)

    def leave_work(self, ref: MachineRef) -> object:
        return None

    def booted(self, ref: MachineRef) -> Bootstrap | None:
        process = self.cloud.census()[ref.native_id]["pid"]
        if process is None or "host" not in psutil.Process(process).cmdline():
            return None
        return Bootstrap.from_dict(json.loads((self.cloud.folder(ref.native_id) / "bootstrap.json").read_text()))

    def clean(self) -> None:
        self.cloud.reset()
        self._listening.__exit__(None, None, None)


def processes_of(id: str) -> list[int]:
    """Return the living processes with this instance's id in their environment."""
    return [process.pid for process in psutil.process_iter() if _instance_of(process) == id]


def all_processes() -> dict[str, int]:
    """Return the living processes by instance id."""
    found: dict[str, int] = {}
    for process in psutil.process_iter():
        id = _instance_of(process)
        if id:
            found[id] = found.get(id, 0) + 1
    return found


def _instance_of(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return process.environ().get("CLOUD_INSTANCE_ID", "")
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError):
        return ""


def get(url: str, target: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response of the cloud, or of its metadata service, whatever its status."""
    return HttpClient(BaseUrl.parse(url)).send(Request("GET", target, headers=headers or {}))


def get_metadata(url: str, target: str = "") -> Response:
    """Return the response to `GET $CLOUD_METADATA_URL<target>` as programs of other vendors would read the URL."""
    parts = urlsplit(url)
    assert parts.scheme == "http+unix"
    return get(f"unix:{parts.netloc.replace('%2F', '/')}", f"{parts.path}{target}")


def _listens(url: str) -> bool:
    try:
        HttpClient(BaseUrl.parse(url)).connect().close()
    except NotConnected:
        return False
    return True


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
