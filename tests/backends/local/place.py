"""The backend `local` under test: its own state folder, a fake agent, a fake probe, and a clock that tests set."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
from tests.backends.conformance import BOOTSTRAP, BackendHarness, eventually

from crucible.backends.base import LaunchCall, MachineRef
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
from crucible.backends.local import LocalBackend
from crucible.backends.local.devices import Gpu
from crucible.backends.local.settings import LocalSettings
from crucible.core.compute.resources import GiB
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.machines.ending import GRACE_SECONDS

CRASHING_SERVER = """
import json, sys
from pathlib import Path
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.backends.base import LaunchCall
from crucible.backends.bootstrap import AgentFile
from crucible.backends.local import LocalBackend
from crucible.backends.context import BackendContext
from crucible.backends.local.settings import LocalSettings
home, agent, call, bootstrap = sys.argv[1:]
context = BackendContext(
    LocalSettings(), Path(home), Path(home, "agents.url"), AgentFile(Path(agent), "0" * 64), sys.executable
)
backend = LocalBackend(context, host_seconds=60)
backend.launch(LaunchCall(**json.loads(call)), [Bootstrap.from_dict(json.loads(bootstrap))])
"""


class FakeProbe:
    """A computer with the devices that the test chooses."""

    def __init__(
        self,
        cpus: float = 4,
        memory_bytes: int = 8 * GiB,
        cuda: Sequence[Gpu] = (),
        mps: Gpu | None = None,
    ) -> None:
        self._answers = (cpus, memory_bytes, cuda, mps)

    def cpus(self) -> float:
        return self._answers[0]

    def memory_bytes(self) -> int:
        return self._answers[1]

    def cuda(self) -> Sequence[Gpu]:
        return self._answers[2]

    def mps(self) -> Gpu | None:
        return self._answers[3]


class LocalHarness(BackendHarness):
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.agent = folder / "agent.py"
        shutil.copy(Path(__file__).with_name("fake_agent.py"), self.agent)
        self.now = 1000.0
        self._started: list[subprocess.Popen[bytes]] = []

    def context(self, **changes: object) -> BackendContext[LocalSettings]:
        given = {
            "home": self.home,
            "agents_url_file": self.home / "agents.url",
            "agent_file": AgentFile(self.agent, "0" * 64),
            "python": sys.executable,
            "environ": dict(os.environ),
        }
        return BackendContext(LocalSettings(), **{**given, **changes})  # type: ignore[arg-type]

    def backend(self, **changes: object) -> LocalBackend:
        context = self.context(**changes)
        return LocalBackend(context, FakeProbe(), clock=lambda: self.now)

    def folder(self, ref: MachineRef) -> Path:
        return self.home / "machines" / ref.machine

    def set_mode(self, mode: str) -> None:
        """Set how agents that are started from now on misbehave."""
        self.agent.with_name("mode").write_text(mode)

    def count(self, machine: str) -> int:
        return len(self.hosts(machine))

    def hosts(self, machine: str) -> list[psutil.Process]:
        bootstrap = str(self.home / "machines" / machine / "bootstrap.json")
        processes = psutil.process_iter(["cmdline", "status"])
        return [p for p in processes if bootstrap in (p.info["cmdline"] or ()) and "-c" not in p.info["cmdline"]]

    def crash_launch(self, call: LaunchCall) -> None:
        """Kill the server while it waits for a host that never comes up."""
        self.set_mode("silent")
        arguments = [str(self.home), str(self.agent), json.dumps(vars(call)), json.dumps(BOOTSTRAP.to_dict())]
        server = subprocess.Popen([sys.executable, "-c", CRASHING_SERVER, *arguments])
        launched = self.home / "machines" / call.token / "launch.json"
        eventually(lambda: launched.exists() and "pid" in json.loads(launched.read_text()))
        server.kill()
        server.wait()
        self.set_mode("")

    def kill_host(self, ref: MachineRef) -> None:
        pid = json.loads((self.folder(ref) / "host.json").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.count(ref.machine) == 0)

    def leave_work(self, ref: MachineRef, attempt: str = "att-1") -> Path:
        folder = self.folder(ref) / "attempts" / f"{attempt}-0"
        folder.mkdir(parents=True)
        (folder / "assignment.json").write_text("{}")
        return folder

    def start_runner(self, ref: MachineRef, attempt: str = "att-1", *, deaf: bool = False) -> Path:
        """Start a runner with a user process and its child, and wait for both."""
        folder = self.leave_work(ref, attempt)
        command = [sys.executable, str(self.agent), "runner", str(folder), *(["deaf"] if deaf else [])]
        self._started.append(subprocess.Popen(command, start_new_session=True))
        eventually(lambda: (folder / "ready").exists() and (folder / "runner.json").exists())
        return folder

    def start_stray(self, attempt: str) -> subprocess.Popen[bytes]:
        """Start a process that has only the attempt's id in its environment."""
        command = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
        environ = {**os.environ, "CRUCIBLE_ATTEMPT_ID": attempt}
        stray = subprocess.Popen(command, env=environ, start_new_session=True, stdout=subprocess.PIPE)
        self._started.append(stray)
        assert stray.stdout is not None
        stray.stdout.readline()
        return stray

    def booted(self, ref: MachineRef) -> Bootstrap | None:
        if not self.count(ref.machine):
            return None
        return Bootstrap.from_dict(json.loads((self.folder(ref) / "bootstrap.json").read_text()))

    def hurry(self) -> None:
        self.now += GRACE_SECONDS

    def clean(self) -> None:
        """Kill every process with this harness's folder on its command line, and its children."""
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.home) in word for word in process.info["cmdline"] or ()):
                process.kill()
        for started in self._started:
            started.kill()
            started.wait()
