"""The backend `ssh` under test: its own state folder, real hosts, the real agent, and a server that only claims."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.backends.conformance import BOOTSTRAP, BackendHarness, eventually
from tests.ssh.sshd import UID, Network, SshHost

from crucible.backends.base import LaunchCall, MachineRef
from crucible.backends.context import BackendContext
from crucible.backends.ssh.backend import NativeId, SshBackend
from crucible.backends.ssh.settings import SshSettings
from crucible.control.agents.agent_file import build_agent
from crucible.core.ids import Prefix, make_id
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.http.client import unix_url

CRASHING_SERVER = """
import json, sys
from pathlib import Path
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.backends.base import LaunchCall
from crucible.backends.ssh.backend import SshBackend
from crucible.backends.ssh.settings import SshSettings
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
home, agent, own, deployment, call, bootstrap = sys.argv[1:]
home = Path(home)
context = BackendContext(
    SshSettings.model_validate_json(own), home, home / "agents.address",
    AgentFile(Path(agent), Path(agent).stem[6:]), sys.executable, agents_socket_file=home / "agents.socket",
    deployment=deployment,
)
backend = SshBackend(context)
backend.launch(LaunchCall(**json.loads(call)), [Bootstrap.from_dict(json.loads(bootstrap))])
"""


class AgentsListener:
    """A server at a Unix socket that lets hosts claim their machine, and has no work. `calls`: what it was asked."""

    def __init__(self, path: Path) -> None:
        calls = self.calls = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                calls.append(self.path)
                body = b'{"secret": "of-this-machine"}' if self.path.endswith("/claim") else b"{}"
                self.send_response(200 if self.path.endswith("/claim") else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def address_string(self) -> str:
                return "agent"

            def log_message(self, *_: object) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(str(path), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class SshHarness(BackendHarness):
    """`hosts`: those of the settings, by name; default: all of the network."""

    def __init__(self, network: Network, folder: Path, *hosts: object, number: int = 1, **own: object) -> None:
        self.network = network
        self.home = folder / "home"
        self.home.mkdir()
        self.agent = build_agent(folder / "agent")
        self.deployment = make_id(Prefix.DEPLOYMENT, 9, abs(hash(str(folder))) % 10**12 + number)
        # The paths of pytest are too long for sockets; mode 0700, as that of the server's.
        self.sockets = Path(tempfile.mkdtemp(prefix="cru"))
        self.listener = AgentsListener(self.sockets / "agents.sock")
        (self.home / "agents.socket").write_text(unix_url(self.sockets / "agents.sock"))
        names = list(hosts or network.hosts)
        self.own = SshSettings.model_validate({"hosts": names, "config": str(network.config), **own})
        self._backends: list[SshBackend] = []

    def context(self) -> BackendContext[SshSettings]:
        return BackendContext(
            settings=self.own,
            home=self.home,
            agents_url_file=self.home / "agents.address",
            agent_file=self.agent,
            python=sys.executable,
            environ={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
            agents_socket_file=self.home / "agents.socket",
            deployment=self.deployment,
        )

    def backend(self) -> SshBackend:
        made = SshBackend(self.context())
        self._backends.append(made)
        return made

    def host_of(self, machine: str) -> SshHost:
        found = [host for host in self.network.hosts.values() if self._folder(host, machine) is not None]
        assert len(found) == 1, f"{machine} is on {[host.name for host in found]}"
        return found[0]

    def folder(self, machine: str) -> Path:
        found = self._folder(self.host_of(machine), machine)
        assert found is not None
        return found

    def _folder(self, host: SshHost, machine: str) -> Path | None:
        found = list(host.disk.glob(f".crucible/hosts/*/{self.deployment}/machines/{_name(machine)}"))
        return found[0] if found else None

    def count(self, machine: str) -> int:
        return len(self.host_pids(machine))

    def host_pids(self, machine: str) -> list[int]:
        """Return the pids, on this computer, of the machine's hosts."""
        running = [host for host in self.network.hosts.values() if host.process is not None]
        commands = {pid: command for host in running for pid, command in host.processes().items()}
        wanted = f"/machines/{_name(machine)}/bootstrap.json"
        return [pid for pid, command in commands.items() if command.endswith(wanted) and " -c " not in command]

    def crash_launch(self, call: LaunchCall) -> None:
        """Kill the server as soon as something of the machine is on its host."""
        arguments = [str(self.home), str(self.agent.path), self.own.model_dump_json(), self.deployment]
        call_and_bootstrap = [json.dumps(vars(call)), json.dumps(BOOTSTRAP.to_dict())]
        server = subprocess.Popen([sys.executable, "-c", CRASHING_SERVER, *arguments, *call_and_bootstrap])
        eventually(lambda: any(self._tagged(host, call.token) for host in self.network.hosts.values()))
        server.kill()
        server.wait()

    def _tagged(self, host: SshHost, machine: str) -> bool:
        folder = self._folder(host, machine)
        return folder is not None and (folder / "tags.json").exists()

    def kill_host(self, ref: MachineRef) -> None:
        for pid in self.host_pids(ref.machine):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.count(ref.machine) == 0)

    def leave_work(self, ref: MachineRef) -> Path:
        return leave_work(self.folder(ref.machine))

    def booted(self, ref: MachineRef) -> Bootstrap | None:
        if not self.count(ref.machine):
            return None
        return Bootstrap.from_dict(json.loads((self.folder(ref.machine) / "bootstrap.json").read_text()))

    def clean(self) -> None:
        """End connections, every process of the hosts, and what they keep."""
        for backend in self._backends:
            backend.leave()
        for host in self.network.hosts.values():
            if host.process is not None:
                for pid in host.processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.listener.close()
        subprocess.run(["rm", "-rf", str(self.sockets)], check=False)


def leave_work(machine: Path, attempt: str = "att-1") -> Path:
    """Write an unfinished attempt to a machine's folder, as the user there."""
    folder = machine / "attempts" / f"{attempt}-0"
    folder.mkdir(parents=True)
    (folder / "assignment.json").write_text("{}")
    for path in (folder.parent, folder, folder / "assignment.json"):
        os.chown(path, UID, UID)
    return folder


def _name(machine: str) -> str:
    """Return the machine's id, given that or a token."""
    native = NativeId.parse(machine)
    return native.machine if native else machine
