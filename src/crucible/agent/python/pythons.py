"""Find and check the Pythons of a machine, and list the packages that are installed in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crucible.wire.python_versions import BadVersion, version_matches

CHECK_SECONDS = 30.0
_ASK = (
    "import sys, platform; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable); "
    "print(sys.prefix); print(sys.platform + '-' + platform.machine()); "
    "print(sys.implementation.name + getattr(sys, 'abiflags', ''))"
)
_FIND = ("python", "find", "--system", "--no-project", "--no-config", "--no-python-downloads")
_OTHER = "choose another interpreter with --python"

MAX_PACKAGES = 2000
_TOOLS = frozenset({"pip", "setuptools", "wheel", "uv"})
_INFO = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[0-9][A-Za-z0-9.!_]*)(?:\+[A-Za-z0-9._]+)?\.dist-info"
)
_FOLDER = re.compile(r"python(?P<version>3\.[0-9]+)")


class BadPython(Exception):
    """An interpreter cannot be used. The text says why, and what to do."""


class NoPython(BadPython):
    """The machine has no suitable Python."""


@dataclass(frozen=True)
class Python:
    """A Python that runs. `platform` is that of its wheels, such as `linux-x86_64`."""

    path: str
    version: str
    prefix: str
    platform: str
    implementation: str


class Pythons:
    """Finds a Python for a job with these variables. The agent's own is used only if it is named."""

    def __init__(self, env: Mapping[str, str], uv: str | None = None, own: str = sys.prefix) -> None:
        """`uv` finds more Pythons than PATH has. `own` is the prefix of the agent's Python.

        If that is a virtual environment, it is never the default.
        """
        self._env = env
        self._uv = uv
        self._own = os.path.realpath(own) if own != sys.base_prefix else None

    def named(self, path: str) -> Python:
        """Return the interpreter that the user named. Raises BadPython unless it exists and runs."""
        if not os.path.isabs(path):
            raise BadPython(f"the interpreter {path!r} is not an absolute path; name one with --python")
        if not os.path.isfile(path):
            raise BadPython(f"there is no interpreter {path} on this machine; {_OTHER}")
        if not os.access(path, os.X_OK):
            raise BadPython(f"{path} is not executable; {_OTHER}")
        return replace(_ask(path, self._env), path=path)

    def default(self, wanted: str | None = None) -> Python:
        """Return the first python3 or python on PATH that is not the agent's own, else one that uv finds.

        `wanted` is a version or a specifier. Raises NoPython, or BadPython if `wanted` is neither.
        """
        if wanted is not None:
            _check_wanted(wanted)
        for path in self._candidates(wanted):
            try:
                python = _ask(path, self._env)
            except BadPython:
                continue
            if not self._is_ours(python) and (wanted is None or version_matches(python.version, wanted)):
                return python
        if wanted is None:
            raise NoPython("this machine has no python3 on its PATH; install it, or name one with --python")
        raise NoPython(
            f"this machine has no Python {wanted} as python3 on its PATH; "
            "install uv, which searches further, or name one with --python"
        )

    def _candidates(self, wanted: str | None) -> Iterator[str]:
        """Yield candidates, those on PATH first, so that users get the same `python3` as in a shell."""
        folders = [folder for folder in self._env.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
        paths = (os.path.join(folder, name) for name in ("python3", "python") for folder in folders)
        yield from (path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK))
        if wanted is not None and self._uv is not None:
            yield from self._found_by_uv(self._uv, wanted)

    def _found_by_uv(self, uv: str, wanted: str) -> list[str]:
        """Return at most one path: of a `python3.N` on PATH, or of one that uv has downloaded. Downloads nothing."""
        try:
            done = _run([uv, *_FIND, wanted], self._env)
        except BadPython:
            return []
        return done.stdout.splitlines()[:1] if done.returncode == 0 else []

    def _is_ours(self, python: Python) -> bool:
        prefix = os.path.realpath(python.prefix)
        return self._own is not None and (prefix == self._own or prefix.startswith(self._own + os.sep))


def _check_wanted(wanted: str) -> None:
    try:
        version_matches("3", wanted)
    except BadVersion as error:
        raise BadPython(str(error)) from error


def _ask(path: str, env: Mapping[str, str]) -> Python:
    answer = _run([path, "-I", "-c", _ASK], env)
    lines = answer.stdout.split("\n")
    if answer.returncode != 0 or len(lines) < 5 or not re.fullmatch(r"\d+\.\d+\.\d+", lines[0]):
        raise BadPython(_why_not(path, answer.returncode, answer.stderr))
    version, executable, prefix, platform, implementation = lines[:5]
    return Python(executable or path, version, prefix, platform, implementation)


def _run(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the program. Raises BadPython if it does not start, or does not end in time."""
    plain = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHECK_SECONDS,
            check=False,
            env=plain,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise BadPython(f"{command[0]} did not start within {CHECK_SECONDS:g} seconds; {_OTHER}") from error
    except OSError as error:
        raise BadPython(f"{command[0]} cannot be run: {error.strerror or error}; {_OTHER}") from error


def _why_not(path: str, code: int, stderr: str) -> str:
    """Return a sentence about why it does not run. Its own message is included if it is a single line."""
    if "shims" in Path(path).parts:
        return (
            f"{path} is a shim of a version manager that has no such Python active; "
            "name the interpreter behind it with --python"
        )
    lines = stderr.strip().splitlines()
    if len(lines) == 1 and "import sys" not in lines[0] and len(lines[0]) <= 300:
        return f"{path} does not run as a Python ({lines[0].strip()}); {_OTHER}"
    return f"{path} does not run as a Python: asked for its version it ended with code {code}; {_OTHER}"


def installed_packages(python: str) -> list[str]:
    """Return `name==version` of every package of this Python's own environment, sorted, without starting it.

    Local version labels (`+cpu`) are dropped: an index may have the same version under another label.
    """
    return sorted(_pins(python))[:MAX_PACKAGES]


def python_version(python: str) -> str | None:
    """Return the version such as `3.11`, from the name of the environment's library folder; None if there is none."""
    folder = next(_libraries(python), None)
    found = _FOLDER.fullmatch(folder.name) if folder is not None else None
    return found["version"] if found else None


def _pins(python: str) -> Iterator[str]:
    for library in _libraries(python):
        for name in _names(library / "site-packages"):
            found = _INFO.fullmatch(name)
            if found and found["name"].lower() not in _TOOLS:
                yield f"{found['name'].replace('_', '-').lower()}=={found['version']}"


def _libraries(python: str) -> Iterator[Path]:
    """Yield the folders `lib/python3.X` beside it, without following links: a venv's `python` links out of it."""
    lib = Path(os.path.abspath(python)).parent.parent / "lib"
    for name in sorted(_names(lib)):
        if _FOLDER.fullmatch(name):
            yield lib / name


def _names(folder: str | Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
