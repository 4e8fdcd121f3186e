"""What runs on a host: one fixed script, fed on stdin, that finds Python and answers one request.

Nothing that a user wrote is ever part of a command line there. The login shell gets REMOTE_COMMAND alone; its shell
reads SCRIPT as one line of stdin, and Python reads LOADER and the request, which is JSON, from what follows. The answer
is the line that begins with a mark chosen for this request, because a login shell may print more.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.backends.bootstrap import OLDEST_PYTHON
from crucible.core.errors import CrucibleError

REMOTE_COMMAND = "exec sh -c 'IFS= read -r script && eval \"$script\"'"
"""`read` takes no byte beyond the line, so that what follows is left for Python. Login shells of every kind run it."""

_PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9", "/usr/bin/python3",
    "/usr/local/bin/python3", "/opt/conda/bin/python3", "$HOME/miniconda3/bin/python3", "$HOME/anaconda3/bin/python3",
    "$HOME/miniforge3/bin/python3", "$HOME/.local/bin/python3",
)  # fmt: skip
_TOO_OLD = 99
_RUN = (
    f"import sys; sys.version_info < {OLDEST_PYTHON} and sys.exit({_TOO_OLD}); "
    "i = sys.stdin.buffer; exec(i.read(int(i.readline())).decode())"
)
_SCRIPT_LINES = (
    "IFS= read -r mark",
    "os=$(uname -s)",
    """answer() { printf '\\n%s {"error": "%s", "why": "%s"}\\n' "$mark" "$1" "$2"; }""",
    '[ "$os" = Linux ] || { answer other_system "$os"; exit 0; }',
    "old=",
    "for p in " + " ".join(f'"{python}"' for python in _PYTHONS),
    f'do "$p" -I -c "{_RUN}" "$mark"',
    # 2: Python 2, which has no -I. 126 and 127: there is none.
    f"case $? in 2|{_TOO_OLD}) old=$p;; 126|127) ;; *) exit 0;; esac",
    "done",
    'answer no_python "$old"',
)
SCRIPT = "; ".join(_SCRIPT_LINES) + "\n"

LOADER = '''\
import hashlib, json, os, sys

def find_agent(wanted, source):
    """Return the path of the agent's file: kept on this host, or for this request in memory; None if not sent."""
    kept = os.path.join(os.path.expanduser("~"), wanted["folder"], wanted["name"]) if wanted["folder"] else ""
    data = source.read(wanted["bytes"])
    if kept and os.path.exists(kept):
        with open(kept, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() == wanted["sha256"]:
                return kept
    if not data:
        return None
    if hashlib.sha256(data).hexdigest() != wanted["sha256"]:
        raise OSError("the agent's file arrived damaged")
    if not wanted["keep"]:
        descriptor = os.memfd_create("agent")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        return "/proc/self/fd/%d" % descriptor
    os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)
    part = "%s.%d" % (kept, os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, kept)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return kept

def main(mark):
    source = sys.stdin.buffer
    request = json.loads(source.readline())
    try:
        agent = find_agent(request["agent"], source)
    except OSError as error:
        kind = "disk_full" if error.errno in (28, 122) else "failed"
        return {"error": kind, "what": "The agent's file cannot be kept on the host.", "why": "%s." % error}
    if agent is None:
        return {"error": "no_agent"}
    sys.path.insert(0, agent)
    from crucible.agent.machines.requests import answer
    return answer(request, agent)

mark = sys.argv[1]
print("\\n%s %s" % (mark, json.dumps(main(mark))), flush=True)
'''


class BadAnswer(CrucibleError):
    """The host's output holds no answer."""

    code = "bad_answer"


@dataclass(frozen=True)
class AgentContent:
    """The content of the agent's file, as hosts get it."""

    name: str
    sha256: str
    data: bytes

    @classmethod
    def read(cls, path: Path) -> AgentContent:
        data = path.read_bytes()
        return cls(path.name, hashlib.sha256(data).hexdigest(), data)


@dataclass(frozen=True)
class Request:
    """One request. `keep`: the host keeps the agent's file below `folder`, because it will start from there.

    `send_agent`: the file goes with the request, because the host may not have it.
    """

    action: str
    parameters: Mapping[str, object]
    folder: str = ""
    keep: bool = False
    send_agent: bool = False

    def encode(self, agent: AgentContent, mark: str) -> bytes:
        """Return what the host reads: script, mark, loader, the request as one line, and the agent's file."""
        data = agent.data if self.send_agent else b""
        wanted = {
            "name": agent.name,
            "sha256": agent.sha256,
            "folder": f"{self.folder}/agent" if self.folder else "",
            "bytes": len(data),
            "keep": self.keep,
        }
        request = json.dumps({**self.parameters, "action": self.action, "agent": wanted})
        loader = LOADER.encode()
        return b"".join([SCRIPT.encode(), f"{mark}\n{len(loader)}\n".encode(), loader, request.encode(), b"\n", data])


def make_mark() -> str:
    return f"crucible-{secrets.token_hex(12)}"


def decode_answer(output: bytes, mark: str) -> dict[str, object]:
    """Return the answer in the output of a host, whatever else was printed there. Raises BadAnswer."""
    prefix = f"{mark} ".encode()
    line = next((line for line in reversed(output.splitlines()) if line.startswith(prefix)), None)
    try:
        answer = json.loads(line[len(prefix) :]) if line is not None else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        text = output[-200:].decode(errors="replace").strip()
        raise BadAnswer("The host did not answer.", why=f"It printed: {text!r}." if text else "It printed nothing.")
    return answer
