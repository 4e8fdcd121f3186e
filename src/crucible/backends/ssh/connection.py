"""The connection to one host: requests, and the tunnel through which agents there reach the server.

While machines run on the host, a master of OpenSSH holds one connection for requests and tunnel. It belongs to the
server: it is started again with growing pauses, ends when the last machine does, and is found again by a later server.
Without machines each request has a connection of its own. Requests to one host are made one at a time, so a host that
allows one session per connection is enough.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.backends.bootstrap import OLDEST_PYTHON_NAME
from crucible.backends.ssh.openssh import CONNECT_SECONDS, HostUnreachable, OpenSsh, kill_session
from crucible.backends.ssh.remote import (
    REMOTE_COMMAND,
    AgentContent,
    BadAnswer,
    Request,
    decode_answer,
    make_mark,
)
from crucible.backends.ssh.settings import SshHost
from crucible.core.errors import Trouble
from crucible.wire.files.locks import hold_lock
from crucible.wire.http.client import BaseUrl, unix_url

REQUEST_SECONDS = 10.0
BUSY_SECONDS = 5.0
"""How long a request waits for others to the same host."""
END_SECONDS = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_POLL_SECONDS = 0.02
Doc = Mapping[str, object]


class HostFailed(Trouble):
    """The host answers, but cannot perform the request. `kind` is the error that agent/machines/requests.py returns."""

    code = "host_failed"

    def __init__(self, what: str, *, why: str = "", fix: str = "", kind: str = "failed") -> None:
        super().__init__(what, why=why, fix=fix)
        self.kind = kind


@dataclass(frozen=True)
class HostFolder:
    """Where one deployment keeps its files on a host, below the home: `.crucible/hosts/NODE/DEPLOYMENT`."""

    node: str
    deployment: str

    @property
    def path(self) -> str:
        return f".crucible/hosts/{self.node}/{self.deployment}"

    @property
    def parameters(self) -> Doc:
        return {"node": self.node, "deployment_folder": self.deployment}


class HostConnection:
    """`agent` returns the agent's file. `clock` is monotonic."""

    def __init__(
        self,
        host: SshHost,
        ssh: OpenSsh,
        agent: Callable[[], AgentContent],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self.ssh = ssh
        self._agent = agent
        self._clock = clock
        self._lock = threading.RLock()
        self._holds = 0
        self._master: subprocess.Popen[bytes] | None = None
        self._keeps_agent: set[str] = set()
        self._failure: HostUnreachable | None = None
        self._pause = 0.0
        self._retry_at = 0.0

    @contextlib.contextmanager
    def hold(self, seconds: float = BUSY_SECONDS) -> Iterator[None]:
        """Let no other thread, and no other server of this state folder, make a request to this host meanwhile."""
        busy = HostUnreachable(f"The host {self.host.name} is busy with other requests.", fix="Try again.")
        if not self._lock.acquire(timeout=seconds):
            raise busy
        with contextlib.ExitStack() as held:
            held.callback(self._lock.release)
            if not self._holds:
                try:
                    held.enter_context(hold_lock(self.ssh.lock_file(self.host), seconds))
                except TimeoutError as error:
                    raise busy from error
            self._holds += 1
            try:
                yield
            finally:
                self._holds -= 1

    def ask(
        self,
        action: str,
        folder: HostFolder | None = None,
        *,
        keep: bool = False,
        seconds: float = REQUEST_SECONDS,
        **parameters: object,
    ) -> dict[str, object]:
        """Return the host's answer to a request (agent/machines/requests.py). Raises HostUnreachable, or HostFailed.

        `keep`: the host keeps the agent's file, because something will be started from it.
        """
        path = next(iter(self._keeps_agent), "") if folder is None else folder.path
        complete = {**({} if folder is None else folder.parameters), **parameters}
        with self.hold():
            known = path in self._keeps_agent
            request = Request(action, complete, path, keep, send_agent=not path or not known)
            answer = self._exchange(request, seconds)
            if answer.get("error") == "no_agent":
                answer = self._exchange(Request(action, complete, path, keep, send_agent=True), seconds)
            if keep and "error" not in answer:
                self._keeps_agent.add(path)
        if "error" in answer:
            raise self._failed_there(answer)
        return answer

    def retry_now(self) -> None:
        """Forget the pause after a failure."""
        self._retry_at = 0.0

    # The master and its tunnel

    def is_open(self) -> bool:
        return self.ssh.control(self.host, "check").code == 0

    def open(self) -> bool:
        """Start the master unless one runs, and return whether it is a new one. Raises HostUnreachable."""
        with self.hold(), self._pauses():
            if self.is_open():
                return False
            self._reap()
            self.ssh.import_known_keys(self.host)
            self.ssh.control_path(self.host).unlink(missing_ok=True)  # a dead master's
            process, until = self.ssh.start_master(self.host), time.monotonic() + CONNECT_SECONDS + 2
            while not (self.ssh.control_path(self.host).exists() and self.is_open()):
                if process.poll() is not None or time.monotonic() > until:
                    kill_session(process)
                    raise self.ssh.explain(self.host, self.ssh.master_log(self.host).read_text(errors="replace"))
                time.sleep(_POLL_SECONDS)
            self._master = process
            return True

    def close(self) -> None:
        """End the master, if there is one, between two requests."""
        with self.hold():
            self.close_now()

    def close_now(self) -> None:
        """End the master, if there is one, and any request with it."""
        self.ssh.control(self.host, "exit")
        self._reap()
        self.ssh.master_log(self.host).unlink(missing_ok=True)

    def _reap(self) -> None:
        """Wait for a master of this process that is ending, so that no zombie is left."""
        if self._master is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._master.wait(END_SECONDS)
                self._master = None

    def make_tunnel(self, folder: HostFolder, local: Path) -> str:
        """Let agents on the host reach the socket `local` through the open master; return the address they have.

        A socket that only this user can open, else a port of the host's loopback.
        """
        with self.hold():
            place = str(self.ask("open_tunnel", folder)["folder"])
            url = self._forward_socket(f"{place}/{secrets.token_hex(4)}", local) or self._forward_port(local)
            if not url:
                raise HostFailed(
                    f"The sshd of {self.host.name} lets no agent reach the server.",
                    why="It forwards neither sockets nor ports.",
                    fix="Set AllowStreamLocalForwarding yes in its sshd_config, and reload it.",
                    kind="no_tunnel",
                )
            if not self.ask("use_tunnel", folder, url=url)["tunnel"]:
                raise HostFailed(
                    f"The tunnel to {self.host.name} does not work.",
                    why=f"Nothing answers at {url} there.",
                    fix="Look whether its sshd_config limits forwarding, then run: crucible backends check ssh",
                )
            return url

    def _forward_socket(self, remote: str, local: Path) -> str:
        done = self.ssh.control(self.host, "forward", "-R", f"{_escape(remote)}:{_escape(str(local))}")
        return "" if done.code else unix_url(remote)

    def _forward_port(self, local: Path) -> str:
        done = self.ssh.control(self.host, "forward", "-R", f"127.0.0.1:0:{_escape(str(local))}")
        port = done.stdout.decode(errors="replace").strip()
        return "" if done.code or not port.isdigit() else f"http://127.0.0.1:{port}"

    # Exchanges

    def _exchange(self, request: Request, seconds: float) -> dict[str, object]:
        mark = make_mark()
        with self._pauses():
            self.ssh.import_known_keys(self.host)
            output = self.ssh.run(self.host, [REMOTE_COMMAND], request.encode(self._agent(), mark), seconds)
        try:
            return decode_answer(output.stdout, mark)
        except BadAnswer as error:
            printed = output.stderr.strip()[-300:]
            raise HostFailed(
                f"The host {self.host.name} runs no programs for us.",
                why=f"{error.why} {printed}".strip(),
                fix=f"A login there must run commands on Linux: ssh {self.ssh.login(self.host)} uname",
                kind="bad_answer",
            ) from error

    @contextlib.contextmanager
    def _pauses(self) -> Iterator[None]:
        """Fail at once during the pause after a failure, so that a host that is down delays nothing else."""
        if self._failure is not None and self._clock() < self._retry_at:
            raise HostUnreachable(self._failure.what, why=self._failure.why, fix=self._failure.fix)
        try:
            yield
        except HostUnreachable as error:
            self._failure = error
            self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            self._retry_at = self._clock() + self._pause
            raise
        self._failure, self._pause = None, 0.0

    def _failed_there(self, answer: Doc) -> HostFailed:
        kind, why, name = str(answer["error"]), str(answer.get("why") or ""), self.host.name
        if kind == "other_system":
            fix = "Only Linux hosts can be used."
            return HostFailed(f"The host {name} runs {why}.", fix=fix, kind=kind)
        if kind == "no_python":
            has = f"Its {why} is older." if why else "It has none."
            fix = f"Install one there, for example: sudo apt-get install python{OLDEST_PYTHON_NAME}"
            return HostFailed(
                f"The host {name} needs Python {OLDEST_PYTHON_NAME} or newer.", why=has, fix=fix, kind=kind
            )
        if kind == "disk_full":
            fix = f"Free some space in the home of {self.host.user or 'the user'} on {name}."
            return HostFailed(f"There is no space left on {name}.", why=why, fix=fix, kind=kind)
        fix = f"The user needs a home on {name} that it can write to." if kind == "failed" else ""
        return HostFailed(f"{name}: {answer.get('what') or 'it failed.'}", why=why, fix=fix, kind=kind)


def is_socket(url: str) -> bool:
    """Return whether the address of a tunnel is a socket, rather than a port that every user of the host can use."""
    return bool(BaseUrl.parse(url).socket)


def _escape(path: str) -> str:
    """Return the path as part of a forwarding, in which a colon separates and a backslash escapes."""
    return path.replace("\\", "\\\\").replace(":", "\\:")
