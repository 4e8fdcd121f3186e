"""Start the agent's host on this computer, detached from the server."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from crucible.backends.settings import BackendSettings
from crucible.wire.process import Process, find_process

_START_SECONDS = 2.0
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


def start_host(settings: BackendSettings, folder: Path, bootstrap: Path) -> Process | None:
    """Start the host, detached, and return its process; None if it has ended already.

    Raises TimeoutError if it may have been started, another OSError if it was not.
    """
    host = [settings.python, "-I", str(settings.agent_file), "host", "--bootstrap", str(bootstrap)]
    with open(folder / "host.log", "ab") as log:
        command = [settings.python, "-I", "-S", "-c", _DETACH, *host]
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=host_environment(settings.environ),
                timeout=_START_SECONDS,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{settings.python} did not start within {_START_SECONDS:g} s") from error
        except subprocess.CalledProcessError as error:
            raise OSError(f"{settings.python} could not start the agent: {error}") from error
    return find_process(int(answer.stdout))


def log_tail(folder: Path) -> str:
    """Return the end of the host's log."""
    with contextlib.suppress(FileNotFoundError), open(folder / "host.log", "rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _TAIL_BYTES))
        return log.read().decode(errors="replace").strip()
    return ""
