"""Putting a copy of the database in the place of an embedded server's own, while that server is down.

The work is done by `python -m crucible.app db restore FILE`: it holds the state folder's lock meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from crucible.client.transport.problems import error_from
from crucible.core.errors import CrucibleError, TimedOut, Trouble

COMMAND = (sys.executable, "-m", "crucible.app", "db", "restore")
SECONDS = 600.0

_LAST_LINES = 5


def restore(
    file: Path,
    home: Path,
    environ: Mapping[str, str],
    *,
    force: bool = False,
    in_use: bool = False,
    command: Sequence[str] | None = None,
    seconds: float = SECONDS,
) -> dict[str, object]:
    """Restore the state folder `home` from `file`; what the program tells of it. Raises in its own words.

    `force` also takes a copy of another deployment's database, for its history. `in_use`: a PostgreSQL database is
    replaced even while a process seems to work on it.
    """
    flags = [flag for flag, said in (("--force", force), ("--in-use", in_use)) if said]
    try:
        done = subprocess.run(
            [*(command or COMMAND), str(file), "--home", str(home), *flags],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        why, fix = f"It was given {seconds:g} seconds.", "Look whether the disk is slow or full; then restore again."
        raise TimedOut("The restore did not end in time.", why=why, fix=fix) from error
    if done.returncode:
        raise _failure(done.stderr, done.returncode)
    return _told(done.stdout)


def _told(text: str) -> dict[str, object]:
    """The object on the last line, if there is one."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _failure(said: str, code: int) -> CrucibleError:
    problem = _told(said).get("error")
    if isinstance(problem, dict):
        return error_from(problem)
    return Trouble(
        f"The restore failed with code {code}.",
        why="\n".join(said.strip().splitlines()[-_LAST_LINES:]),
        fix="The database is as it was before; `crucible doctor` checks the surroundings.",
    )
