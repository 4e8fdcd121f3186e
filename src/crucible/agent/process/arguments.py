"""Expand the paths that only the machine knows in the arguments of a program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

FOLDERS = {
    "{outputs}": "CRUCIBLE_OUTPUT_DIR",
    "{checkpoints}": "CRUCIBLE_CHECKPOINT_DIR",
    "{data}": "CRUCIBLE_DATA_DIR",
}
_PARTS = re.compile(r"\$(?:\{(CRUCIBLE_\w+)\}|(CRUCIBLE_\w+))|" + "|".join(map(re.escape, FOLDERS)))


def expand_arguments(command: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command with `$CRUCIBLE_...`, `{outputs}`, `{checkpoints}` and `{data}` expanded in its arguments.

    Variables that are not set stay as they are, and so does code: the text after `-c`, which may mean something else by
    the same characters.
    """
    is_code = list(command[1:2]) == ["-c"]
    first = 3 if is_code else 1
    return (*command[:first], *(_expand(word, env) for word in command[first:]))


def _expand(word: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or FOLDERS[match[0]]
        return env.get(name, match[0])

    return _PARTS.sub(value, word)
