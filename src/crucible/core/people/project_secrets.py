"""Names and sizes of the secrets of projects. Their values are never kept here."""

from __future__ import annotations

import re

from crucible.core.errors import BadInput, NotFound

MAX_SECRET_NAME = 100
SHORTEST_SECRET, LONGEST_SECRET = 4, 32 * 1024
"""Bytes. A shorter value could not be redacted from output: it would match everywhere."""
MOST_SECRETS = 64
"""Maximum number of secrets of one job."""
SECRET_PATTERN = rf"^[A-Za-z_][A-Za-z0-9_.-]{{0,{MAX_SECRET_NAME - 1}}}$"
_NAME = re.compile(SECRET_PATTERN.strip("^$"))


def is_secret_name(name: str) -> bool:
    """Return whether the name is one that users can set; the server's own secrets have other names."""
    return _NAME.fullmatch(name) is not None


def validate_secret_name(name: str) -> str:
    """Return the name if it is valid for a secret. Raises BadInput."""
    if not is_secret_name(name):
        raise BadInput(
            f"{name[:80]!r} is not a valid secret name.",
            why=f"A name has 1 to {MAX_SECRET_NAME} letters, digits and _ . -, and starts with a letter or _.",
            fix="Choose a name such as HF_TOKEN. The value is never passed as an argument.",
            field="name",
        )
    return name


def validate_secret_value(value: str) -> str:
    """Return the value if it can be stored, passed to a program and redacted from output. Errors never contain it."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput("The value is not valid text.", fix="Encode it first, for example with base64.") from None
    if "\0" in value:
        raise BadInput(
            "The value contains a NUL character.", why="Environment variables cannot.", fix="Encode it first."
        )
    if not SHORTEST_SECRET <= size <= LONGEST_SECRET:
        raise BadInput(
            f"The value has {size} bytes.",
            why=f"A secret has {SHORTEST_SECRET} bytes to {LONGEST_SECRET // 1024} KiB: a shorter one could not be "
            "redacted from output, a longer one not be passed to the program.",
            fix="Use a value of that size; put larger data into files that a job fetches.",
        )
    return value


def missing_secret(name: str, project: str) -> NotFound:
    """Return the error for a secret that the project does not have."""
    return NotFound(
        f"The project {project!r} has no secret {name!r}.",
        why="It was never set, or was removed.",
        fix=f"An admin of the project can set it: crucible secrets set {name} --project {project}",
        secret=name,
        project=project,
    )
