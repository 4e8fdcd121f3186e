"""Dump and restore a PostgreSQL database with its own programs: pg_dump, pg_restore and psql.

Passwords are passed in the environment, never on a command line, which other users can read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from sqlalchemy import text

from crucible.control.db.port import DatabaseError, DiskFull
from crucible.core.errors import TimedOut, Trouble

SECONDS = 4 * 3600.0
TAIL = 2000


def dump(url: str, target: Path) -> None:
    """Write a consistent dump of the database at `url`."""
    program = _program("pg_dump")
    _run([program, "--format=custom", "--no-owner", "--no-privileges", f"--file={target}"], url)


def restore_dump(url: str, dumped: Path, marks: str) -> None:
    """Replace the database's content by the dump and run the SQL `marks`, in one transaction."""
    programs = _program("pg_restore"), _program("psql")
    script = dumped.with_suffix(".sql")
    flags = ["--clean", "--if-exists", "--no-owner", "--no-privileges"]
    _call([programs[0], *flags, f"--file={script}", str(dumped)], os.environ)
    with script.open("a", encoding="utf-8") as file:
        file.write(f"\n{marks}\n")
    _run([programs[1], "--single-transaction", "--set=ON_ERROR_STOP=1", "--quiet", f"--file={script}"], url)


def read_revision(url: str) -> str:
    """Return the revision of the database's schema."""
    from crucible.control.db.postgres.schema import open_connection

    with open_connection(url) as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Trouble(
            f"The program {name} is not installed here.",
            why="PostgreSQL databases are dumped and restored with PostgreSQL's own programs.",
            fix="Install PostgreSQL's client programs (apt install postgresql-client), at least as new as the server.",
        )
    return found


def _run(command: list[str], url: str) -> None:
    bare, password = without_password(url)
    environ = {**os.environ, "PGCONNECT_TIMEOUT": "10"}
    if password is not None:
        environ["PGPASSWORD"] = password
    _call([*command, f"--dbname={bare}"], environ)


def _call(command: list[str], environ: os._Environ[str] | dict[str, str]) -> None:
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, env=environ, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        fix = "Find out what blocks the database, then try again."
        raise TimedOut(f"{name} did not end within {SECONDS / 3600:g} hours.", fix=fix) from error
    if done.returncode == 0:
        return
    message = done.stderr.decode(errors="replace").strip()[-TAIL:]
    if "No space left on device" in message:
        raise DiskFull(f"{name} found no room on the disk.", why=message, fix="Free some space, then try again.")
    raise DatabaseError(f"{name} failed.", why=message, fix="Its version must be the server's or a newer one.")


def without_password(url: str) -> tuple[str, str | None]:
    """Return the URL without its password, and the password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url, None
    address = parts.netloc.rpartition("@")[2]
    user = parts.netloc.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@{address}")), unquote(parts.password)
