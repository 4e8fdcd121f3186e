"""The Python of a job: one that is named, one that is built and kept, or the machine's own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.files import write_file
from crucible.agent.pythons import BadPython, Python, Pythons
from crucible.agent.stagework import StageError, StageWork
from crucible.wire.desired import Environment
from crucible.wire.paths import UnsafePath, safe_join

BUILDER_VERSION = 1
BUILD_SECONDS = 3600.0
_PASSED_ON = ("PIP_", "UV_")
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__", "node_modules")


@dataclass(frozen=True)
class Chosen:
    """The interpreter to use, and for people where it comes from."""

    python: str
    about: str


@dataclass(frozen=True)
class Builder:
    """Chooses and builds. `envs` holds built environments by the hash of what went into them."""

    envs: Path
    pythons: Pythons
    work: StageWork
    host_env: Mapping[str, str]
    uv: str | None = None

    def choose(
        self,
        environment: Environment,
        code: Path,
        job_env: Mapping[str, str],
        code_id: str | None = None,
    ) -> Chosen:
        """The job's Python. `code` is the staged code and `code_id` names its content; raises StageError."""
        try:
            if environment.interpreter is not None:
                python = self.pythons.named(environment.interpreter)
                return Chosen(python.path, f"Python {python.version}, {environment.origin or 'as asked'}")
            if not environment.requirements and environment.project is None:
                python = self.pythons.default(environment.python)
                return Chosen(python.path, f"Python {python.version} of this machine")
            return self._built(environment, code, job_env, code_id)
        except BadPython as error:
            raise StageError(str(error)) from error

    def _built(
        self, environment: Environment, code: Path, job_env: Mapping[str, str], code_id: str | None
    ) -> Chosen:
        python = self._base(environment.python)
        project = None if environment.project is None else _project(code, environment.project)
        env = self._variables(job_env)
        content = None if project is None else (code_id or _tree_id(project))
        key = _key(environment, python, content, env)
        home = self.envs / key
        self.envs.mkdir(parents=True, exist_ok=True)
        waiting = "waiting for the environment that another job builds"
        lock = self.work.take_lock(self.envs / f"{key}.lock", waiting)
        try:
            about = f"environment {key[:12]}"
            if _is_complete(home):
                return Chosen(str(home / "bin" / "python"), f"{about}, built earlier")
            self.work.say("building the environment")
            _Build(self, home, python, env, _uv(self.uv, self.host_env)).run(environment, project)
            return Chosen(str(home / "bin" / "python"), f"{about}, built now")
        finally:
            lock.release()

    def _base(self, version: str | None) -> Python:
        try:
            return self.pythons.default(version)
        except BadPython:
            if version is None or _uv(self.uv, self.host_env) is None:
                raise
        return Python(version, version, "", "")  # uv finds or fetches it

    def _variables(self, job_env: Mapping[str, str]) -> dict[str, str]:
        """For a build: the host's own variables, without what would make one Python read another's files."""
        kept = {
            name: value
            for name, value in self.host_env.items()
            if not name.startswith(("PYTHON", "CRUCIBLE_")) and name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
        }
        return {**kept, **{name: value for name, value in job_env.items() if name.startswith(_PASSED_ON)}}


@dataclass(frozen=True)
class _Build:
    """One build. It is done in place, because an environment does not survive being moved; what counts is the
    marker that is written last."""

    builder: Builder
    home: Path
    python: Python
    env: Mapping[str, str]
    uv: str | None

    def run(self, environment: Environment, project: Path | None) -> None:
        wanted = self._wanted(environment, project)
        try:
            said = self._with_uv(wanted) if self.uv is not None else None
            if said is not None:
                self.builder.work.note("uv could not build the environment; trying pip")
            if self.uv is None or said is not None:
                said = self._with_pip(wanted)
            if said is not None:
                raise StageError(f"the environment could not be built: {said}")
            write_file(self.home / ".complete", b"", durable=True)
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def _scratch(self) -> Path:
        return self.home.with_name(self.home.name + ".scratch")

    def _wanted(self, environment: Environment, project: Path | None) -> tuple[str, ...]:
        """What to install, as arguments. A project is copied: building leaves files in its folder."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        if project is None:
            listed = self._scratch / "requirements.txt"
            listed.write_text("\n".join(environment.requirements) + "\n", encoding="utf-8")
            return ("-r", str(listed))
        copy = self._scratch / "project"
        shutil.copytree(project, copy, symlinks=True, ignore=_NOT_COPIED)
        return (str(copy),)

    def _with_uv(self, wanted: tuple[str, ...]) -> str | None:
        """None, or what went wrong."""
        assert self.uv is not None
        shutil.rmtree(self.home, ignore_errors=True)
        target = str(self.home / "bin" / "python")
        return self._steps(
            (self.uv, "venv", "--quiet", "--no-project", "--python", self.python.path, str(self.home)),
            (self.uv, "pip", "install", "--python", target, *wanted),
        )

    def _with_pip(self, wanted: tuple[str, ...]) -> str | None:
        shutil.rmtree(self.home, ignore_errors=True)
        target = str(self.home / "bin" / "python")
        said = self._steps((self.python.path, "-m", "venv", str(self.home)))
        if said is not None:
            return f"{said}\nInstall this Python's venv module (on Debian: apt install python3-venv), or uv."
        return self._steps((target, "-m", "pip", "install", "--no-input", *wanted))

    def _steps(self, *commands: tuple[str, ...]) -> str | None:
        for command in commands:
            done, last = self.builder.work.run(command, self._scratch, self.env, BUILD_SECONDS)
            if not done:
                return last or f"{command[0]} failed"
        return None


def _is_complete(home: Path) -> bool:
    """Whether the environment is whole and its base Python has not been taken away since."""
    return (home / ".complete").exists() and os.access(home / "bin" / "python", os.X_OK)


def _project(code: Path, name: str) -> Path:
    try:
        project = code if name in ("", ".") else safe_join(code, name)
    except UnsafePath as error:
        raise StageError(f"the project folder {error}") from error
    if not (project / "pyproject.toml").is_file():
        raise StageError(f"there is no pyproject.toml in {name!r} of the job's code")
    return project


def _uv(named: str | None, host_env: Mapping[str, str]) -> str | None:
    if named is not None and os.access(named, os.X_OK):
        return named
    return shutil.which("uv", path=host_env.get("PATH"))


def _key(environment: Environment, python: Python, content: str | None, env: Mapping[str, str]) -> str:
    parts = [
        BUILDER_VERSION,
        list(environment.requirements),
        environment.project,
        content,
        [os.path.realpath(python.path), python.version, python.platform],
        sorted((name, value) for name, value in env.items() if name.startswith(_PASSED_ON)),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _tree_id(folder: Path) -> str:
    """Names, sizes and times of a folder that changes under us."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not {".git", ".venv", "__pycache__"} & set(path.relative_to(folder).parts):
            info = path.stat()
            found.update(f"{path.relative_to(folder)}\0{info.st_size}\0{info.st_mtime_ns}\n".encode())
    return f"{folder}:{found.hexdigest()}"
