"""Which Python runs a job: chosen once, at submission, and told in words.

In this order: `--python`; what the code declares (PEP 723 block, requirements.txt, pyproject.toml); the
submitting shell's VIRTUAL_ENV, then CONDA_PREFIX; `./.venv`; python3 on PATH. Never Crucible's own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crucible.client.declared import from_pyproject, from_requirements, from_script_block
from crucible.core.errors import BadInput
from crucible.core.spec import EnvironmentSpec


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


@dataclass(frozen=True)
class Surroundings:
    """The submitting shell, as values: what a choice of Python may depend on."""

    environ: Mapping[str, str]
    folder: Path
    own_prefix: str = sys.prefix
    own_base: str = sys.base_prefix
    is_program: Callable[[str], bool] = _is_program
    realpath: Callable[[str], str] = os.path.realpath


@dataclass(frozen=True)
class Code:
    """The code that looks for a Python: its folder, its entry inside it, and the entry's text.

    `whole` says that the folder travels with the job, not only the entry and what it imports.
    """

    root: Path | None = None
    entry: str | None = None
    text: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Choice:
    environment: EnvironmentSpec
    notes: tuple[str, ...] = field(default=())


def choose_python(named: str | None, code: Code, around: Surroundings) -> Choice:
    """The environment for this code. Raises BadInput for a `--python` that is none, or a bad declaration."""
    if named:
        return Choice(_named(named, around))
    found = declared(code)
    if found is not None:
        return Choice(found)
    return _of_the_shell(around)


def declared(code: Code) -> EnvironmentSpec | None:
    """What the code itself asks for, if anything."""
    if code.entry is not None or code.text:
        block = from_script_block(code.text, code.entry or "the code")
        if block is not None:
            return block
    for folder in _folders(code):
        found = _in_folder(code, folder)
        if found is not None:
            return found
    return None


def _folders(code: Code) -> Iterator[Path]:
    """Beside the entry first, then at the top."""
    if code.root is None:
        return
    beside = (code.root / code.entry).parent if code.entry else code.root
    yield beside
    if beside != code.root:
        yield code.root


def _in_folder(code: Code, folder: Path) -> EnvironmentSpec | None:
    assert code.root is not None
    requirements, pyproject = folder / "requirements.txt", folder / "pyproject.toml"
    if requirements.is_file():
        found = from_requirements(code.root, requirements)
        if found is not None and (code.whole or found.project is None):
            return found
    if pyproject.is_file():
        return from_pyproject(code.root, pyproject, whole=code.whole)
    return None


def _named(named: str, around: Surroundings) -> EnvironmentSpec:
    if os.sep in named or named.startswith("~"):
        path = os.path.abspath(os.path.join(around.folder, os.path.expanduser(named)))
        path = _inside_environment(path, around)
    else:
        path = shutil.which(named, path=around.environ.get("PATH", os.defpath)) or ""
    if not path or not around.is_program(path):
        raise BadInput(
            f"--python {named} is no program that can be run.",
            fix="Give the path of an interpreter or a virtual environment, or a name on PATH.",
        )
    return EnvironmentSpec(interpreter=path, origin=f"--python {named}")


def _inside_environment(path: str, around: Surroundings) -> str:
    """A virtual environment's folder stands for its interpreter."""
    inner = os.path.join(path, "bin", "python")
    return inner if around.is_program(inner) else path


def _of_the_shell(around: Surroundings) -> Choice:
    notes: list[str] = []
    for origin, prefix in _prefixes(around):
        python = os.path.join(prefix, "bin", "python")
        if not around.is_program(python):
            continue
        if around.realpath(prefix) == around.realpath(around.own_prefix):
            notes.append(
                f"{origin[0].upper()}{origin[1:]} is Crucible's own environment and was passed over."
            )
            continue
        return Choice(EnvironmentSpec(interpreter=python, origin=origin), tuple(notes))
    return _on_path(around, tuple(notes))


def _prefixes(around: Surroundings) -> Iterator[tuple[str, str]]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = around.environ.get(variable)
        if prefix:
            yield f"the shell's {variable}", prefix
    yield "./.venv", str(around.folder / ".venv")


def _on_path(around: Surroundings, notes: tuple[str, ...]) -> Choice:
    own = around.realpath(around.own_prefix)
    shared: str | None = None
    for folder in around.environ.get("PATH", os.defpath).split(os.pathsep):
        python = os.path.join(folder, "python3")
        if not folder or not around.is_program(python):
            continue
        if around.realpath(os.path.dirname(folder.rstrip(os.sep))) != own:
            return Choice(EnvironmentSpec(interpreter=python, origin="python3 on PATH"), notes)
        shared = shared or python
    return _last_resort(around, shared, notes)


def _last_resort(around: Surroundings, shared: str | None, notes: tuple[str, ...]) -> Choice:
    """No other Python on PATH: the one that Crucible's environment was made from, without its packages."""
    base = os.path.join(around.own_base, "bin", "python3")
    private = around.realpath(around.own_base) != around.realpath(around.own_prefix)
    if private and around.is_program(base):
        return Choice(EnvironmentSpec(interpreter=base, origin="this computer's python3"), notes)
    if shared is not None and not private:
        origin = "python3 on PATH, where Crucible is installed too"
        return Choice(EnvironmentSpec(interpreter=shared, origin=origin), notes)
    raise BadInput(
        "No Python for the job was found.",
        why="There is no virtual environment in use and no python3 on PATH besides Crucible's own.",
        fix="Pass --python PATH, or declare the requirements in a `# /// script` block.",
    )
