"""The user data of a new machine: a script that writes the host's bootstrap file and becomes the agent's host."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

# Reads the bootstrap from standard input, so that the nonce appears on no command line, and adds what only the machine
# knows.
_BECOME_HOST = """\
import json, os, sys
python, agent = sys.argv[1:]
bootstrap = json.load(sys.stdin)
work = os.getcwd()
bootstrap.update(native_id=os.environ["CLOUD_INSTANCE_ID"], work=work)
bootstrap["interruption_url"] = os.environ["CLOUD_METADATA_URL"] + "/interruption"
path = os.path.join(work, "bootstrap.json")
with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
    json.dump(bootstrap, file)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execv(python, [python, "-I", agent, "host", "--bootstrap", path])
"""
_END = "END_OF_BOOTSTRAP"
_VARIABLES = "# {variables}"
_BOOTSTRAP = "{bootstrap}"


def script_template(python: str, agent_file: str) -> str:
    """Return the script without secrets and variables: a dry run shows it, and a launch fills it in."""
    become = " ".join(shlex.quote(word) for word in (python, "-I", "-c", _BECOME_HOST, python, agent_file))
    return f"#!/bin/sh\n{_VARIABLES}\nexec {become} <<'{_END}'\n{_BOOTSTRAP}\n{_END}\n"


def fill_script(script: str, bootstrap: Mapping[str, object], variables: Mapping[str, str]) -> str:
    """Return the complete script. The bootstrap is JSON on one line, so it cannot contain the here-document's end."""
    exportable = sorted((name, value) for name, value in variables.items() if name.isidentifier())
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in exportable)
    filled = script.replace(f"\n{_BOOTSTRAP}\n", f"\n{json.dumps(bootstrap)}\n", 1)
    return filled.replace(_VARIABLES, exports, 1)
