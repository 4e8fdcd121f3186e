"""Turns what is to run into a payload, by what it is."""

from __future__ import annotations

import re
from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload, not_found
from crucible.client.payload.directory import from_directory
from crucible.client.payload.function import from_function
from crucible.client.payload.git import from_git, looks_like_git
from crucible.client.payload.notebook import from_notebook
from crucible.client.payload.script import from_code, from_script, from_shell
from crucible.core.errors import BadInput

_HOST = re.compile(r"^[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}/[^/]+/[^/]+", re.IGNORECASE)


def load_code(code_source: CodeSource) -> Payload:
    """Return the payload of a source of any kind but `model`. Raises BadInput for code that cannot be read or run."""
    kind, target = code_source.kind, code_source.target
    if kind == "function":
        assert callable(target), "checked when the arguments were read"
        return from_function(target, code_source)
    text = str(target)
    if kind == "code":
        return from_code(text, code_source)
    if kind == "shell":
        return from_shell(text, code_source)
    return from_git(text, code_source) if kind == "git" else make_payload(text, code_source)


def make_payload(target: str, code_source: CodeSource) -> Payload:
    """Return the payload of a script, notebook, directory or git address. Job files are read before (`job_file.py`)."""
    if not target.strip():
        raise BadInput("There is nothing to run.", fix="Name a script, a directory, a notebook or a git address.")
    if looks_like_git(target):
        return from_git(target, code_source)
    path = code_source.folder / Path(target).expanduser()
    if path.is_dir():
        return from_directory(target, code_source)
    if not path.exists():
        raise _missing_target(path, target)
    if path.suffix == ".ipynb":
        return from_notebook(target, code_source)
    if path.suffix in (".py", ""):
        return from_script(target, code_source)
    raise BadInput(
        f"{target} cannot be run directly.",
        why="Scripts (.py), notebooks (.ipynb), directories, git addresses and job files (.yaml, …) can.",
        fix=f"For another program use --shell, as in --shell './{path.name}' --include {path.name}.",
    )


def _missing_target(path: Path, target: str) -> BadInput:
    """Return the error for a missing path; one that begins with a host name is probably an address."""
    if not _HOST.match(target):
        return not_found(path, target)
    return BadInput(
        f"{target} does not exist.",
        why=f"There is no {path}.",
        fix=f"If it is a git repository, write https://{target}.",
    )
