"""Secrets of projects: what they may be called and how long they may be. Their values are nobody's here."""

from __future__ import annotations

import re

from crucible.core.errors import BadInput, NotFound

MAX_SECRET_NAME = 100
SHORTEST_SECRET, LONGEST_SECRET = 4, 32 * 1024
"""Bytes. What is shorter could not be hidden in output: it would be found everywhere."""
MOST_SECRETS = 64
"""Of one job."""
SECRET_PATTERN = rf"^[A-Za-z_][A-Za-z0-9_.-]{{0,{MAX_SECRET_NAME - 1}}}$"
_NAME = re.compile(SECRET_PATTERN.strip("^$"))


def is_secret_name(name: str) -> bool:
    """Whether a person can have set it; what the server keeps for itself has names that nobody can give."""
    return _NAME.fullmatch(name) is not None


def validate_secret_name(name: str) -> str:
    """The name, if a secret can have it."""
    if not is_secret_name(name):
        raise BadInput(
            f"{name[:80]!r} cannot be the name of a secret.",
            why=f"It has 1 to {MAX_SECRET_NAME} letters, digits and _ . -, and begins with a letter or _.",
            fix="Choose a name such as HF_TOKEN. The value is never given as an argument.",
            field="name",
        )
    return name


def validate_secret_value(value: str) -> str:
    """The value, if one can be kept, handed to a program, and hidden in its output. It is never repeated."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput("The value is no text.", fix="Encode it first, for example with base64.") from None
    if "\0" in value:
        raise BadInput("The value holds a NUL character.", why="No variable can.", fix="Encode it first.")
    if not SHORTEST_SECRET <= size <= LONGEST_SECRET:
        raise BadInput(
            f"The value has {size} bytes.",
            why=f"A secret has {SHORTEST_SECRET} bytes to {LONGEST_SECRET // 1024} KiB: a shorter one could not be "
            "hidden in output, a longer one not be handed over.",
            fix="Give one of that size; larger things belong into files that a job fetches.",
        )
    return value


def missing_secret(name: str, project: str) -> NotFound:
    return NotFound(
        f"The project {project!r} has no secret {name!r}.",
        why="It was never set, or was removed.",
        fix=f"An admin of the project sets it: crucible secrets set {name} --project {project}",
        secret=name,
        project=project,
    )
