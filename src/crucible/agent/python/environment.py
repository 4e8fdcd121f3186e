"""Choose the Python of a job: a named interpreter, a built environment, or the machine's own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.python.build import EnvironmentBuild, scratch_folder
from crucible.agent.python.pythons import BadPython, NoPython, Python, Pythons
from crucible.agent.runner.staging_context import RemovableLock, StagingContext, StagingError
from crucible.wire.documents.desired import Environment
from crucible.wire.files.paths import UnsafePath, safe_join

BUILDER_VERSION = 1
NAMED_BY_USER = "--python"
"""How the origin of an interpreter begins that the user named."""
_PASSED_ON = ("PIP_", "UV_")
_CHOOSES_PACKAGES = (
    "INDEX",
    "FIND_LINKS",
    "CONSTRAINT",
    "OVERRIDE",
    "PRE",
    "RESOLUTION",
    "EXCLUDE_NEWER",
    "FORK",
)


@dataclass(frozen=True)
class ChosenPython:
    """The interpreter to use, and a text for users about where it comes from."""

    python: str
    about: str


@dataclass(frozen=True)
class EnvironmentBuilder:
    """Chooses and builds. `envs` holds built environments, named by the hash of their inputs.

    `elsewhere`: the job was not submitted on this machine. An interpreter that was found there, and that its user did
    not name, is replaced by this machine's own if it is not here.
    """

    envs: Path
    pythons: Pythons
    work: StagingContext
    host_env: Mapping[str, str]
    uv: str | None = None
    elsewhere: bool = False

    def choose(
        self,
        environment: Environment,
        code: Path,
        job_env: Mapping[str, str],
        code_id: str | None = None,
    ) -> ChosenPython:
        """Return the job's Python. `code` is the staged code, `code_id` identifies its content. Raises StagingError."""
        try:
            if environment.interpreter is not None and not self._is_elsewhere(environment):
                python = self.pythons.named(environment.interpreter)
                return ChosenPython(python.path, f"Python {python.version}, {environment.origin or 'as asked'}")
            base = self._base(environment.python)
        except BadPython as error:
            raise StagingError(str(error)) from error
        if base is not None and not environment.requirements and environment.project is None:
            return ChosenPython(base.path, f"Python {base.version} of this machine")
        return self._built(environment, base, code, job_env, code_id)

    def _is_elsewhere(self, environment: Environment) -> bool:
        """Return whether the interpreter was found on another computer, and is not here."""
        found = self.elsewhere and not environment.origin.startswith(NAMED_BY_USER)
        return found and not os.path.exists(environment.interpreter or "")

    def _base(self, wanted: str | None) -> Python | None:
        """Return a Python of this machine, or None if uv is to download one."""
        try:
            return self.pythons.default(wanted)
        except NoPython:
            if wanted is None or self.uv is None:
                raise
        return None

    def _built(
        self,
        environment: Environment,
        base: Python | None,
        code: Path,
        job_env: Mapping[str, str],
        code_id: str | None,
    ) -> ChosenPython:
        project = None if environment.project is None else _project(code, environment.project)
        env = self._variables(job_env)
        content = None if project is None else (code_id or _tree_id(project))
        key = _key(environment, base, content, env, job_env)
        home = self.envs / key
        self.envs.mkdir(parents=True, exist_ok=True)
        waiting = "waiting for another job to build the same environment"
        lock = self.work.take_lock(_lock_of(home), waiting)
        try:
            about = f"environment {key[:12]}"
            if _is_complete(home):
                os.utime(home)  # caches are removed by last use
                return ChosenPython(str(home / "bin" / "python"), f"{about}, built earlier")
            self._clear_left_over(home)
            self.work.status("building the environment")
            path = None if base is None else base.path
            EnvironmentBuild(self.work, home, path, environment.python, env, self.uv).run(environment, project)
            return ChosenPython(str(home / "bin" / "python"), f"{about}, built now")
        finally:
            lock.remove()

    def _clear_left_over(self, ours: Path) -> None:
        """Remove what killed builds left. A lock file that no process holds shows one."""
        for path in self.envs.glob("*.lock"):
            home = path.with_name(path.name[: -len(".lock")])
            lock = None if home == ours else RemovableLock.take(path)
            if lock is None:
                continue
            if not _is_complete(home):
                shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(scratch_folder(home), ignore_errors=True)
            lock.remove()

    def _variables(self, job_env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a build: the host's, without those that make a Python read another one's files."""
        kept = {
            name: value
            for name, value in self.host_env.items()
            if not name.startswith(("PYTHON", "CRUCIBLE_")) and name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
        }
        return {**kept, **{name: value for name, value in job_env.items() if name.startswith(_PASSED_ON)}}


def _is_complete(home: Path) -> bool:
    """Return whether the environment is complete and its base Python still exists."""
    return (home / ".complete").exists() and os.access(home / "bin" / "python", os.X_OK)


def _project(code: Path, name: str) -> Path:
    try:
        project = code if name in ("", ".") else safe_join(code, name)
    except UnsafePath as error:
        raise StagingError(f"bad project folder: {error}") from error
    if not (project / "pyproject.toml").is_file():
        raise StagingError(f"there is no pyproject.toml in {name!r} of the job's code")
    return project


def find_uv(named: str | None, host_env: Mapping[str, str]) -> str | None:
    """Return the uv that the bootstrap names, else one on PATH, or None."""
    if named is not None and os.access(named, os.X_OK):
        return named
    return shutil.which("uv", path=host_env.get("PATH"))


def _lock_of(home: Path) -> Path:
    return home.with_name(home.name + ".lock")


def _key(
    environment: Environment,
    base: Python | None,
    content: str | None,
    env: Mapping[str, str],
    job_env: Mapping[str, str],
) -> str:
    """Return a hash of everything that an environment's content depends on, independent of paths on the machine."""
    wanted = f"as uv finds it: {environment.python}"
    parts = [
        BUILDER_VERSION,
        list(environment.requirements),
        environment.project,
        content,
        [base.version, base.implementation, base.platform]
        if base is not None
        else [wanted, sys.platform, os.uname().machine],
        sorted((name, value) for name, value in env.items() if _is_of_the_build(name, job_env)),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _is_of_the_build(name: str, job_env: Mapping[str, str]) -> bool:
    """Return whether a variable of the host affects the content: only those that choose packages do."""
    is_known = name in job_env or any(word in name for word in _CHOOSES_PACKAGES)
    return name.startswith(_PASSED_ON) and is_known


def _tree_id(folder: Path) -> str:
    """Return a hash of names, sizes and times in a folder, for code that is used in place and may change."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not {".git", ".venv", "__pycache__"} & set(path.relative_to(folder).parts):
            info = path.stat()
            found.update(f"{path.relative_to(folder)}\0{info.st_size}\0{info.st_mtime_ns}\n".encode())
    return f"{folder}:{found.hexdigest()}"
