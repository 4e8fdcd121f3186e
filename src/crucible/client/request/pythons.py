"""Chooses the Python that runs a job, at submission, and says why.

In this order: `--python`; what the code declares (PEP 723 block, requirements.txt, pyproject.toml); the
submitting shell's VIRTUAL_ENV, then CONDA_PREFIX; `./.venv`; python3 on PATH. Never the one that runs Crucible.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from crucible.client.request.declarations import Code, read_declaration, script_block
from crucible.core.errors import BadInput
from crucible.core.job.spec import EnvironmentSpec
from crucible.wire.python_versions import BadVersion, version_matches

FIND_SECONDS = 20.0
_FIND = ("python", "find", "--system", "--no-project", "--no-config", "--no-managed-python", "--no-python-downloads")

_HERE = "./.venv"
_VENV_VERSION = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", re.MULTILINE)


@dataclass(frozen=True)
class Interpreter:
    """A Python that runs. `path` is the interpreter itself, even if the user named a version manager's shim."""

    path: str
    version: str


class NoInterpreter(Exception):
    """uv found no Python that runs; the message is its own."""


def find_python(request: str, environ: Mapping[str, str], folder: Path) -> Interpreter:
    """Return the Python at a path, or the first on PATH in a version range, as uv finds it in `folder`."""
    path = _uv(environ, folder, request)
    return Interpreter(path, _uv(environ, folder, "--show-version", path))


def _uv(environ: Mapping[str, str], folder: Path, *args: str) -> str:
    from uv import find_uv_bin

    environment = {name: value for name, value in environ.items() if not name.startswith(("PYTHON", "UV_PYTHON"))}
    try:
        process = subprocess.run(
            [str(find_uv_bin()), *_FIND, *args],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FIND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoInterpreter(f"uv did not answer within {FIND_SECONDS:g} seconds.") from error
    except OSError as error:
        raise NoInterpreter(error.strerror or str(error)) from error
    if process.returncode:
        raise NoInterpreter(process.stderr.strip().removeprefix("error: "))
    return process.stdout.strip()


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


@dataclass(frozen=True)
class SubmitHost:
    """The environment that a job is submitted from: what the choice of a Python depends on."""

    environ: Mapping[str, str]
    folder: Path
    own_prefix: str = sys.prefix
    own_base: str = sys.base_prefix
    is_program: Callable[[str], bool] = _is_program
    realpath: Callable[[str], str] = os.path.realpath
    run_uv: Callable[[str, Mapping[str, str], Path], Interpreter] = find_python

    @classmethod
    def current(cls) -> SubmitHost:
        """Return the environment and folder of this process."""
        return cls(os.environ, Path.cwd())

    def find_python(self, request: str) -> Interpreter:
        """Return the Python at a path, or the first on PATH in a version range. Raises NoInterpreter."""
        path = os.pathsep.join(self.search_path()) or os.devnull  # an empty PATH would make uv use a default
        return self.run_uv(request, {**self.environ, "PATH": path}, self.folder)

    def search_path(self) -> list[str]:
        """Return the folders of PATH without those of Crucible's own environment."""
        folders = filter(None, self.environ.get("PATH", os.defpath).split(os.pathsep))
        return [folder for folder in folders if not self.is_own(os.path.dirname(folder.rstrip(os.sep)))]

    def is_own(self, prefix: str) -> bool:
        return self.realpath(prefix) == self.realpath(self.own_prefix)


@dataclass(frozen=True)
class EnvironmentChoice:
    environment: EnvironmentSpec
    notes: tuple[str, ...] = field(default=())


NO_PACKAGES = "# nothing but Python itself"
"""As the only requirement: builds an environment with the requested Python and no packages."""


def choose_environment(named: str | None, code: Code, host: SubmitHost) -> EnvironmentChoice:
    """Return the environment for this code; `named` is the value of `--python`. Raises BadInput."""
    if named:
        return _explicit(named, code, host)
    declared = read_declaration(code)
    if declared.environment is None:
        return _with_notes(_from_shell(host), declared.notes)
    if declared.environment.requirements or declared.environment.project:
        return EnvironmentChoice(declared.environment, declared.notes)
    return _with_notes(_in_range(declared.environment, host), declared.notes)


def _with_notes(choice: EnvironmentChoice, notes: tuple[str, ...]) -> EnvironmentChoice:
    return replace(choice, notes=(*notes, *choice.notes))


def _in_range(required: EnvironmentSpec, host: SubmitHost) -> EnvironmentChoice:
    """Return the first Python here within the declared range, else an environment to build with one."""
    assert required.python is not None
    environments = [(origin, python) for origin, python, own in _environments(host) if not own]
    for origin, request in (*environments, ("", required.python)):
        try:
            interpreter = _folders_own(request) if origin == _HERE else host.find_python(request)
        except NoInterpreter:
            continue
        if _fits(interpreter.version, required.python):
            where, python = (
                (origin, request) if origin else (f"{os.path.basename(interpreter.path)} on PATH", interpreter.path)
            )
            why = f"{where}, Python {interpreter.version} as {required.origin} requires"
            return EnvironmentChoice(EnvironmentSpec(interpreter=python, python=required.python, origin=why))
    built = required.model_copy(update={"requirements": (NO_PACKAGES,)})
    return EnvironmentChoice(built, (f"No Python {required.python} was found here; one is downloaded for the job.",))


def _folders_own(python: str) -> Interpreter:
    """Return the Python of the folder's own environment, read from its pyvenv.cfg: reading a folder runs nothing."""
    try:
        written = (Path(python).parents[1] / "pyvenv.cfg").read_text(errors="replace")
    except OSError as error:
        raise NoInterpreter(error.strerror or str(error)) from error
    version = _VENV_VERSION.search(written)
    if version is None:
        raise NoInterpreter("pyvenv.cfg names no version.")
    return Interpreter(python, version[1])


def _fits(version: str, required: str) -> bool:
    """Return whether a version lies in the range; a range that cannot be parsed excludes nothing."""
    try:
        return version_matches(version, required)
    except BadVersion:
        return True


def absolute_python(named: str, folder: Path) -> str:
    """Make a path, or the name of an environment in `folder`, absolute; leave the name of a program as it is."""
    path = os.path.join(folder, os.path.expanduser(named))
    is_path = os.sep in named or named.startswith("~") or os.path.exists(os.path.join(path, "bin", "python"))
    return os.path.abspath(path) if is_path else named


def _explicit(named: str, code: Code, host: SubmitHost) -> EnvironmentChoice:
    path = absolute_python(named, host.folder)
    if os.path.isabs(path):
        path = _inside_environment(path, host)
    else:
        path = shutil.which(named, path=host.environ.get("PATH", os.defpath)) or ""
    if not path or not host.is_program(path):
        raise BadInput(
            f"--python {named} is not an executable.",
            fix="Give the path of an interpreter or a virtual environment, or a name on PATH.",
        )
    try:
        interpreter = host.find_python(path)
    except NoInterpreter as error:
        raise _not_running(named, path, error) from error
    # A shim may choose another Python in the job's folder; the program behind it stays the same.
    environment = EnvironmentSpec(interpreter=interpreter.path if _is_shim(path) else path, origin=f"--python {named}")
    return EnvironmentChoice(environment, tuple(_version_note(named, interpreter, code)))


def _is_shim(path: str) -> bool:
    """Return whether a version manager (pyenv, asdf) installed it, to choose a Python for each folder."""
    return os.path.basename(os.path.dirname(path)) == "shims"


def _not_running(named: str, path: str, error: NoInterpreter) -> BadInput:
    if _is_shim(path):
        fix = "Choose a version for it (pyenv versions; pyenv local VERSION), or give an interpreter's path."
    else:
        fix = "Give the path of an interpreter or a virtual environment that runs."
    return BadInput(f"--python {named} does not run as a Python.", why=f"Output of {path}:\n{error}", fix=fix)


def _version_note(named: str, interpreter: Interpreter, code: Code) -> Iterator[str]:
    """Yield a note if the named Python is not one that the code's own block requires."""
    block = script_block(code)
    required = block.python if block is not None else None
    if required and not _fits(interpreter.version, required):
        yield f"--python {named} is Python {interpreter.version}, while {code.entry or 'the code'} requires {required}."


def _inside_environment(path: str, host: SubmitHost) -> str:
    """Return the interpreter of a virtual environment's folder, or the path itself."""
    inner = os.path.join(path, "bin", "python")
    return inner if host.is_program(inner) else path


def _from_shell(host: SubmitHost) -> EnvironmentChoice:
    notes: list[str] = []
    for origin, python, own in _environments(host):
        if not own:
            return EnvironmentChoice(EnvironmentSpec(interpreter=python, origin=origin), tuple(notes))
        notes.append(f"{origin[0].upper()}{origin[1:]} is Crucible's own environment and was skipped.")
    for folder in host.search_path():
        python = os.path.join(folder, "python3")
        if host.is_program(python):
            return EnvironmentChoice(EnvironmentSpec(interpreter=python, origin="python3 on PATH"), tuple(notes))
    return _base_python(host, tuple(notes))


def _environments(host: SubmitHost) -> Iterator[tuple[str, str, bool]]:
    """Yield where an environment was found, its Python, and whether it is Crucible's own."""
    named = [(f"the shell's {name}", host.environ.get(name)) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    for origin, prefix in (*named, (_HERE, str(host.folder / ".venv"))):
        python = os.path.join(prefix or os.devnull, "bin", "python")
        if prefix and host.is_program(python):
            yield origin, python, host.is_own(prefix)


def _base_python(host: SubmitHost, notes: tuple[str, ...]) -> EnvironmentChoice:
    """Return the Python that Crucible's environment was made from, without its packages. Raises BadInput."""
    base = os.path.join(host.own_base, "bin", "python3")
    if host.is_program(base):
        shared = ", where Crucible is installed too" if host.is_own(host.own_base) else ""
        return EnvironmentChoice(EnvironmentSpec(interpreter=base, origin=f"this computer's python3{shared}"), notes)
    raise BadInput(
        "No Python for the job was found.",
        why="No virtual environment is active, and PATH has no python3 besides Crucible's own.",
        fix="Pass --python PATH, or declare the requirements in a `# /// script` block.",
    )
