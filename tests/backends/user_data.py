"""Run the script of a new machine in a shell, with a Python that only notes what it is given."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from crucible.wire.documents.bootstrap import Bootstrap

_PYTHON = """\
[ $# -gt 3 ] || exit 0  # asked for its version
shift 4                 # -I -c PROGRAM PLAN
printf '%s\\n' "$@" >{folder}/facts
/bin/cat >{folder}/bootstrap
"""


def run_user_data(script: str, folder: Path, commands: Mapping[str, str]) -> Bootstrap:
    """Return the bootstrap that the agent would be started with, as the fake vendor's machine completes it.

    `commands`: what the machine has on its PATH, each as a piece of shell. There is nothing else there, so that a
    script that ends with `poweroff` hurts nobody.
    """
    folder.mkdir(exist_ok=True)
    for name, body in {**commands, "python3": _PYTHON.format(folder=folder)}.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o700)
    home = {"PATH": str(folder), "HOME": str(folder)}
    subprocess.run(["/bin/sh", "-s"], input=script, text=True, env=home, cwd=folder, check=True, timeout=30)
    facts = dict(line.split("=", 1) for line in (folder / "facts").read_text().splitlines())
    empty = [name for name, value in facts.items() if not value]
    assert not empty, f"the machine does not know {' and '.join(empty)}; has it every command that the facts call?"
    document = json.loads((folder / "bootstrap").read_text())
    return Bootstrap.from_dict({**document, **facts})


def noting(path: Path) -> str:
    """Return a command that notes that it was run."""
    return f": >{os.fspath(path)}\n"
