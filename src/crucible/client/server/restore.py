"""Restores a backup into the embedded server, which must be stopped.

`python -m crucible.app db restore FILE` does the work, holding the lock of the state folder.
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
    """Restore the state folder `home` from `file` and return the program's report. Raises the program's error.

    `force` accepts a backup of another deployment. `in_use` replaces a PostgreSQL database even while a process seems
    to use it.
    """
    flags = [flag for flag, is_set in (("--force", force), ("--in-use", in_use)) if is_set]
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
        why, fix = f"The limit is {seconds:g} seconds.", "Check whether the disk is slow or full; then restore again."
        raise TimedOut("The restore timed out.", why=why, fix=fix) from error
    if done.returncode:
        raise _failure(done.stderr, done.returncode)
    return _read_report(done.stdout)


def _read_report(text: str) -> dict[str, object]:
    """Return the JSON object on the last line, if there is one."""
    lines = text.strip().splitlines()
    try:
        report = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _failure(stderr: str, code: int) -> CrucibleError:
    problem = _read_report(stderr).get("error")
    if isinstance(problem, dict):
        return error_from(problem)
    return Trouble(
        f"The restore failed with code {code}.",
        why="\n".join(stderr.strip().splitlines()[-_LAST_LINES:]),
        fix="The database is unchanged; `crucible doctor` checks this computer.",
    )
