"""Which Python runs a job: chosen once, at submission, and told in words.

In this order: `--python`; what the code declares (PEP 723 block, requirements.txt, pyproject.toml); the
submitting shell's VIRTUAL_ENV, then CONDA_PREFIX; `./.venv`; python3 on PATH. Never Crucible's own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from crucible.client import interpreters, versions
from crucible.client.declared import NotToml, from_pyproject, from_requirements, from_script_block
from crucible.client.interpreters import Interpreter, NoInterpreter
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
    probe: Callable[[str, Mapping[str, str], Path], Interpreter] = interpreters.probe

    def ask(self, python: str) -> Interpreter:
        """What this interpreter says of itself; raises NoInterpreter."""
        return self.probe(python, self.environ, self.folder)


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


NO_PACKAGES = "# nothing but Python itself"
"""As the only requirement: an environment is built, with the Python that was asked for and no packages."""


def choose_python(named: str | None, code: Code, around: Surroundings) -> Choice:
    """The environment for this code. Raises BadInput for a `--python` that is none, or a bad declaration."""
    if named:
        return _named(named, code, around)
    found = declared(code)
    if found.environment is None:
        return _with_notes(_of_the_shell(around), found.notes)
    if found.environment.requirements or found.environment.project:
        return Choice(found.environment, found.notes)
    return _with_notes(_fitting(found.environment, around), found.notes)


@dataclass(frozen=True)
class Declared:
    """What the code itself asks for, if anything, and what could not be read."""

    environment: EnvironmentSpec | None
    notes: tuple[str, ...] = ()


def declared(code: Code) -> Declared:
    if code.entry is not None or code.text:
        block = from_script_block(code.text, code.entry or "the code")
        if block is not None:
            return Declared(block)
    notes: list[str] = []
    for folder in _folders(code):
        try:
            found = _in_folder(code, folder)
        except NotToml as error:
            notes.append(f"{error.what.rstrip('.')}, so its dependencies are not known ({error.why})")
            continue
        if found is not None:
            return Declared(found, tuple(notes))
    return Declared(None, tuple(notes))


def _with_notes(choice: Choice, notes: tuple[str, ...]) -> Choice:
    return replace(choice, notes=(*notes, *choice.notes))


def _fitting(wanted: EnvironmentSpec, around: Surroundings) -> Choice:
    """The first Python here that lies in the wanted range; else one is built, which may fetch it."""
    assert wanted.python is not None
    for origin, python in _candidates(around):
        try:
            found = around.ask(python)
        except NoInterpreter:
            continue
        if versions.satisfies(found.version, wanted.python):
            why = f"{origin}, Python {versions.shown(found.version)} as {wanted.origin} requires"
            return Choice(EnvironmentSpec(interpreter=_lasting(found), python=wanted.python, origin=why))
    built = wanted.model_copy(update={"requirements": (NO_PACKAGES,)})
    return Choice(built, (f"No Python {wanted.python} was found here; one is fetched for the job.",))


def _candidates(around: Surroundings) -> Iterator[tuple[str, str]]:
    """Every Python that could be chosen, those that would be chosen anyway first; never Crucible's own."""
    own = around.realpath(around.own_prefix)
    for origin, prefix in _prefixes(around):
        python = os.path.join(prefix, "bin", "python")
        if around.is_program(python) and around.realpath(prefix) != own:
            yield origin, python
    for name in ("python3", *(f"python3.{minor}" for minor in range(30, 7, -1))):
        for folder in around.environ.get("PATH", os.defpath).split(os.pathsep):
            python = os.path.join(folder, name)
            if folder and around.is_program(python) and _prefix_of(folder, around) != own:
                yield f"{name} on PATH", python


def _prefix_of(folder: str, around: Surroundings) -> str:
    return around.realpath(os.path.dirname(folder.rstrip(os.sep)))


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


def located(named: str, folder: Path) -> str:
    """A path, or an environment in that folder, as an absolute path; the name of a program as it is."""
    path = os.path.join(folder, os.path.expanduser(named))
    is_path = os.sep in named or named.startswith("~") or os.path.exists(os.path.join(path, "bin", "python"))
    return os.path.abspath(path) if is_path else named


def _named(named: str, code: Code, around: Surroundings) -> Choice:
    path = located(named, around.folder)
    if os.path.isabs(path):
        path = _inside_environment(path, around)
    else:
        path = shutil.which(named, path=around.environ.get("PATH", os.defpath)) or ""
    if not path or not around.is_program(path):
        raise BadInput(
            f"--python {named} is no program that can be run.",
            fix="Give the path of an interpreter or a virtual environment, or a name on PATH.",
        )
    try:
        found = around.ask(path)
    except NoInterpreter as error:
        raise _not_running(named, path, error) from error
    environment = EnvironmentSpec(interpreter=_lasting(found), origin=f"--python {named}")
    return Choice(environment, tuple(_misfit(named, found, code)))


def _lasting(found: Interpreter) -> str:
    """A version manager's stand-in may choose otherwise where the job runs; the program behind it does not."""
    return found.executable if interpreters.is_shim(found.path) else found.path


def _not_running(named: str, path: str, error: NoInterpreter) -> BadInput:
    if interpreters.is_shim(path):
        fix = "Choose a version for it (pyenv versions; pyenv local VERSION), or give an interpreter's path."
    else:
        fix = "Give the path of an interpreter or a virtual environment that runs."
    return BadInput(f"--python {named} does not run as a Python.", why=f"{path} said:\n{error}", fix=fix)


def _misfit(named: str, found: Interpreter, code: Code) -> Iterator[str]:
    """A note when the named Python is not one that the code's own block asks for."""
    block = from_script_block(code.text, code.entry or "the code") if code.text else None
    wanted = block.python if block is not None else None
    if wanted and not versions.satisfies(found.version, wanted):
        yield (
            f"--python {named} is Python {versions.shown(found.version)}, while {code.entry or 'the code'} "
            f"requires {wanted}."
        )


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
            notes.append(f"{origin[0].upper()}{origin[1:]} is Crucible's own environment and was passed over.")
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
        if _prefix_of(folder, around) != own:
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
