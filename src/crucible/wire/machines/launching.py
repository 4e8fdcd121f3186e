"""Launch a machine on this computer: write its folder, and start the agent's host there, detached.

LaunchFailed
├── NotLaunched    nothing runs, and a new machine's folder was removed again
└── MayRun         a host may run or come up
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crucible.wire.machines.folder import Launched, MachineFolder, Tags, write_doc
from crucible.wire.process import Process, find_process

LOCK_SECONDS = 2.0
"""How long a launch waits for another launch, or a removal, of the same machine."""
_START_SECONDS = 2.0
_POLL_SECONDS = 0.01
_TAIL_BYTES = 2000

# A double fork: the process in between exits at once, so that the host is no child of the server, which would have to
# reap it, and gets no signal from its terminal.
_DETACH = """\
import os, sys
pid = os.fork()
if pid:
    print(pid)
    sys.exit()
os.setsid()
os.dup2(2, 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""

_PASSED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "UV_INDEX_URL",
    "UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_OFFLINE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
})  # fmt: skip
_CREDENTIALS = re.compile(r"://[^/\s]*@")


def host_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the server's variables that a host and its jobs may see: known names, and no URL with credentials."""
    defaults = {"PATH": f"/usr/local/bin:{os.defpath}", "HOME": os.path.expanduser("~")}
    passed = {
        name: value
        for name, value in environ.items()
        if (name in _PASSED or name.startswith("LC_")) and not _CREDENTIALS.search(value)
    }
    return defaults | passed


class LaunchFailed(Exception):
    """`what` happened in one sentence, and `why`."""

    def __init__(self, what: str, why: str = "") -> None:
        super().__init__(f"{what} {why}".strip())
        self.what = what
        self.why = why


class NotLaunched(LaunchFailed):
    pass


class MayRun(LaunchFailed):
    pass


@dataclass(frozen=True)
class HostCommand:
    """How to start a host: the interpreter, the agent's file, and the variables that its jobs may see."""

    python: str
    agent_file: Path
    environ: Mapping[str, str] = field(repr=False)

    def start(self, folder: Path, bootstrap: Path) -> Process | None:
        """Start the host, detached, and return its process; None if it has ended already.

        Raises TimeoutError if it may have been started, another OSError if it was not.
        """
        host = [self.python, "-I", str(self.agent_file), "host", "--bootstrap", str(bootstrap)]
        with open(folder / "host.log", "ab") as log:
            command = [self.python, "-I", "-S", "-c", _DETACH, *host]
            try:
                answer = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=folder,
                    env=dict(self.environ),
                    timeout=_START_SECONDS,
                    check=True,
                )
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"{self.python} did not start within {_START_SECONDS:g} s") from error
            except subprocess.CalledProcessError as error:
                raise OSError(f"{self.python} could not start the agent: {error}") from error
        return find_process(int(answer.stdout))


def launch_machine(
    folder: MachineFolder, tags: Tags, bootstrap: dict[str, object], host: HostCommand, seconds: float
) -> None:
    """Start the machine's host unless it runs, and wait until it does, at most `seconds`. Raises LaunchFailed."""
    try:
        folder.make()
        with folder.hold(LOCK_SECONDS):
            if folder.ending:
                raise NotLaunched("The machine is being terminated.")
            if not folder.host:
                _launch(folder, tags, bootstrap, host, seconds)
    except (TimeoutError, FileNotFoundError) as error:
        raise MayRun("Another process is starting or removing this machine.", f"{error}.") from error
    except OSError as error:
        raise NotLaunched("The machine's folder could not be created.", f"{error}.") from error


def _launch(folder: MachineFolder, tags: Tags, bootstrap: dict[str, object], host: HostCommand, seconds: float) -> None:
    started = _start(folder, tags, bootstrap, host)
    try:
        folder.write_launched(Launched(started, time.time()))
        _await_host(folder, started, seconds)
    except OSError as error:
        raise MayRun("The agent's host does not come up.", f"{error}.") from error


def _start(folder: MachineFolder, tags: Tags, bootstrap: dict[str, object], host: HostCommand) -> Process | None:
    try:
        folder.write_tags(tags)
        write_doc(folder.path / "bootstrap.json", bootstrap)
        folder.write_launched(Launched(None, time.time()))
        return host.start(folder.path, folder.path / "bootstrap.json")
    except TimeoutError as error:
        raise MayRun("The agent's host did not start in time.", f"{error}.") from error
    except OSError as error:
        raise _not_started(folder, f"{error}.") from error


def _await_host(folder: MachineFolder, started: Process | None, seconds: float) -> None:
    """Wait until a host is up. If two were started, the agent's lock lets only one run; either will do."""
    until = time.monotonic() + seconds
    while not folder.host:
        if not (started and started.alive) and not folder.host_locked:
            raise _not_started(folder, log_tail(folder.path))
        if time.monotonic() > until:
            raise TimeoutError(f"no host after {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def _not_started(folder: MachineFolder, why: str) -> LaunchFailed:
    """Return the error for a host that did not start. Removes a new machine; keeps one whose runners may live."""
    what = "The agent could not be started."
    if folder.unfinished():
        return MayRun(what, why)
    with contextlib.suppress(OSError):  # it is still listed, so the janitor removes what is left
        folder.remove()
    return NotLaunched(what, why)


def log_tail(folder: Path) -> str:
    """Return the end of the host's log."""
    with contextlib.suppress(FileNotFoundError), open(folder / "host.log", "rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _TAIL_BYTES))
        return log.read().decode(errors="replace").strip()
    return ""
