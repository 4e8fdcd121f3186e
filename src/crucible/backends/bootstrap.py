"""The bootstrap of every remote machine: one POSIX sh script that turns a new machine into the agent's host.

A backend only says how its provider runs a script. The script finds a Python, gets the agent file from the first
source that has it, checks its hash, and becomes the host (`start_agent.py`). It needs no curl, and nothing is executed
from the folders that it writes to. If it fails, it ends with one line on stderr and a code of `BootFailure`.

Sources of the agent file: paths on the machine; then, by the bootstrap's channel, the agents' listener (`agents_url`,
`agents_url_file`) or the store (`store`: `agent_file`, a path or a signed URL).
"""

from __future__ import annotations

import enum
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from crucible.wire.documents.bootstrap import Bootstrap

OLDEST_PYTHON = (3, 9)
OLDEST_PYTHON_NAME = ".".join(map(str, OLDEST_PYTHON))
NEWEST_PYTHON = (3, 13)
CACHE = "~/.cache/crucible/agents"
DOWNLOAD_SECONDS = 300.0
AGENT_ROUTES = "/agent/v1"
"""Path below which the agents' listener serves the agent file by its name."""

_NAME = re.compile(r"agent-([0-9a-f]{64})\.pyz")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_END = "END_OF_BOOTSTRAP"
_VARIABLES = "# {variables}"
_BOOTSTRAP = "{bootstrap}"
_SCRIPT = """\
#!/bin/sh
# Starts the agent of a machine of Crucible.
# {variables}
{begin}set -- {facts}
python= unusable=
for name in {names}; do
    found=$(command -v "$name" 2>/dev/null) || continue
    if version=$("$found" -I -c '{check}' </dev/null 2>/dev/null); then
        python=$found
        break
    fi
    unusable="$unusable $found (${{version:-does not run}})"
done
if [ -z "$python" ]; then
    if [ -z "$unusable" ]; then
        echo 'crucible: there is no python3 on PATH; install Python {oldest} or newer' >&2
        exit {no_python}
    fi
    echo "crucible: Python {oldest} or newer, with its whole standard library, is needed; found:$unusable" >&2
    exit {too_old}
fi
exec "$python" -I -c {program} {plan} "$@" <<'{end}'
{{bootstrap}}
{end}
echo 'crucible: the shell cannot start Python with the bootstrap as its input; is the disk full?' >&2
exit {no_space}
{finish}"""
_THEN = """\
)
ended=$?
{then}
exit "$ended"
"""
_CHECK = (
    'import sys; print("Python %d.%d" % sys.version_info[:2]); import ctypes, http.client, json, ssl, zipfile, zlib; '
    f"sys.exit(sys.version_info < {OLDEST_PYTHON})"
)


class BootFailure(enum.IntEnum):
    """The exit codes of a script that failed. Its last line on stderr says what happened, and on which machine path."""

    NO_PYTHON = 70
    PYTHON_TOO_OLD = 71
    NO_DOWNLOAD = 72
    WRONG_HASH = 73
    NO_SPACE = 74
    BAD_FOLDER = 75
    BAD_BOOTSTRAP = 76


@dataclass(frozen=True)
class AgentFile:
    """The agent as one file, `agent-<sha256>.pyz`, on this computer."""

    path: Path
    sha256: str

    @property
    def name(self) -> str:
        return agent_name(self.sha256)


def agent_name(sha256: str) -> str:
    return f"agent-{sha256}.pyz"


def find_agent_sha256(call: str) -> str | None:
    """Return the hash of the agent file that a stored launch call boots from; None if it names none."""
    found = _NAME.search(call)
    return found and found[1]


def script_template(
    agent: AgentFile,
    folder: str,
    *,
    cache: str = CACHE,
    python: str = "",
    paths: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    detach: bool = False,
    then: str = "",
    download_seconds: float = DOWNLOAD_SECONDS,
) -> str:
    """Return the script without its secret half: a dry run shows it, and it is stored as part of the launch call.

    `folder` is the machine's own, `cache` the one that keeps agent files: both are made with mode 0700 and may begin
    with `~`. `python` is an interpreter that is tried before those on PATH, `paths` are where the machine may have the
    agent file already. `facts`: fields of the bootstrap that only the machine knows, each as a shell word, such as
    `{"native_id": "$INSTANCE_ID"}`. The script becomes the host; with `detach` it ends once the host is a process of
    its own, and its last line on stdout is `crucible-host <pid>`. `then`: a command that the script runs once the
    agent has ended, whatever its outcome, or could not be started; `poweroff` for a machine that bills while it is on.
    The script tries to get the agent file for `download_seconds`.
    """
    if then and detach:
        raise ValueError("A detached host has not ended when the script ends.")
    plan = {
        "sha256": agent.sha256,
        "target": f"{AGENT_ROUTES}/{agent.name}",
        "folder": folder,
        "cache": cache,
        "paths": list(paths),
        "detach": detach,
        "seconds": download_seconds,
    }
    newest, oldest = NEWEST_PYTHON[1], OLDEST_PYTHON[1]
    names = ([python] if python else []) + ["python3"] + [f"python3.{n}" for n in range(newest, oldest - 1, -1)]
    program = resources.files("crucible.backends").joinpath("start_agent.py").read_text("utf-8")
    return _SCRIPT.format(
        variables="{variables}",
        facts=" ".join(f'"{name}={word}"' for name, word in (facts or {}).items()),
        names=" ".join(map(shlex.quote, names)),
        check=_CHECK,
        oldest=OLDEST_PYTHON_NAME,
        no_python=BootFailure.NO_PYTHON.value,
        too_old=BootFailure.PYTHON_TOO_OLD.value,
        no_space=BootFailure.NO_SPACE.value,
        program=shlex.quote(program),
        plan=shlex.quote(json.dumps(plan)),
        end=_END,
        begin="(\n" if then else "",
        finish=_THEN.format(then=then) if then else "",
    )


def fill_script(template: str, bootstrap: Bootstrap, variables: Mapping[str, str]) -> str:
    """Return the complete script: a secret, because the bootstrap has the machine's nonce.

    The bootstrap is JSON on one line of a here-document, so it is on no command line and in no variable. `variables`
    are exported to the agent and its jobs.
    """
    exportable = sorted((name, value) for name, value in variables.items() if _VARIABLE.fullmatch(name))
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in exportable)
    filled = template.replace(f"\n{_BOOTSTRAP}\n", f"\n{json.dumps(bootstrap.to_dict())}\n", 1)
    return filled.replace(_VARIABLES, exports, 1)
