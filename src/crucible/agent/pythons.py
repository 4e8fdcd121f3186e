"""Finds and checks the Pythons of a machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from crucible.agent.files import read_json, write_json
from crucible.agent.versions import BadVersion, fits, is_plain

CHECK_SECONDS = 30.0
_ASK = (
    "import sys, platform; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable); "
    "print(sys.prefix); print(sys.platform + '-' + platform.machine()); "
    "print(sys.implementation.name + getattr(sys, 'abiflags', ''))"
)
_WITH_MINOR = re.compile(r"python3\.(\d+)t?")
_OTHER = "choose another interpreter with --python"


class BadPython(Exception):
    """The interpreter cannot be used; the text says why and what to do."""


class NoPython(BadPython):
    """The machine has none that would do."""


@dataclass(frozen=True)
class Python:
    """A Python that runs. `platform` is where its wheels belong, such as `linux-x86_64`."""

    path: str
    version: str
    prefix: str
    platform: str
    implementation: str


class Pythons:
    """Answers are remembered in the file `memory`: starting an interpreter costs tens of milliseconds."""

    def __init__(self, memory: Path, env: Mapping[str, str], avoid: Sequence[str] = ()) -> None:
        self._memory = memory
        self._env = env
        own = [sys.prefix] if sys.prefix != sys.base_prefix else []
        self._avoid = [os.path.realpath(prefix) for prefix in (*avoid, *own)]

    def named(self, path: str) -> Python:
        """The interpreter the user named; BadPython unless it is there and runs."""
        if not os.path.isabs(path):
            raise BadPython(f"the interpreter {path!r} is not an absolute path; name one with --python")
        if not os.path.isfile(path):
            raise BadPython(f"there is no interpreter {path} on this machine; {_OTHER}")
        if not os.access(path, os.X_OK):
            raise BadPython(f"{path} is not executable; {_OTHER}")
        return replace(self._check(path), path=path)

    def default(self, wanted: str | None = None) -> Python:
        """The first python3 of this machine that is not ours; `wanted` is a version or a specifier.

        Raises NoPython, or BadPython when `wanted` says nothing.
        """
        if wanted is not None:
            _check_wanted(wanted)
        for path in self._candidates(wanted):
            try:
                python = self._check(path)
            except BadPython:
                continue
            if not self._is_ours(python) and (wanted is None or fits(python.version, wanted)):
                return python
        what = "python3" if wanted is None else f"Python {wanted}"
        raise NoPython(f"this machine has no {what} on its PATH; install it, or name one with --python")

    def _candidates(self, wanted: str | None) -> Iterator[str]:
        """The usual names first, so that what people get by typing `python3` wins where it fits."""
        exact = [] if wanted is None or not is_plain(wanted) else [f"python{wanted}"]
        for name in (*exact, "python3", "python"):
            yield from filter(_is_program, (os.path.join(folder, name) for folder in self._path()))
        if wanted is not None:
            yield from self._with_minor()
            yield from self._managed()

    def _path(self) -> list[str]:
        return [f for f in self._env.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(f)]

    def _with_minor(self) -> Iterator[str]:
        """`python3.13`, `python3.12` … of the PATH, the newest first."""
        found = []
        for place, folder in enumerate(self._path()):
            for name in _names(folder):
                match = _WITH_MINOR.fullmatch(name)
                if match is not None:
                    found.append((-int(match.group(1)), place, os.path.join(folder, name)))
        return filter(_is_program, (path for _, _, path in sorted(found)))

    def _managed(self) -> Iterator[str]:
        """What pyenv, asdf, mise and uv have installed, whether or not it is on the PATH."""
        home = self._env.get("HOME", "")
        data = self._env.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
        places = (
            os.path.join(self._env.get("PYENV_ROOT") or os.path.join(home, ".pyenv"), "versions"),
            os.path.join(home, ".asdf", "installs", "python"),
            os.path.join(data, "mise", "installs", "python"),
            self._env.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv", "python"),
        )
        for place in filter(os.path.isabs, places):
            for name in sorted(_names(place), key=_numbers, reverse=True):
                path = os.path.join(place, name, "bin", "python3")
                if _is_program(path):
                    yield path

    def _is_ours(self, python: Python) -> bool:
        prefix = os.path.realpath(python.prefix)
        return any(prefix == ours or prefix.startswith(ours + os.sep) for ours in self._avoid)

    def _check(self, path: str) -> Python:
        stamp = self._stamp(path)
        known = (read_json(self._memory) or {}).get(stamp)
        if isinstance(known, list) and len(known) == 5:
            return Python(*(str(item) for item in known))
        python = _ask(path, self._env)
        self._remember(stamp, python)
        return python

    def _stamp(self, path: str) -> str:
        """What the answer depends on: the file behind the path, and what version managers look at."""
        info = os.stat(path)
        managed = [self._env.get(name, "") for name in ("PYENV_VERSION", "HOME", "PATH")]
        return json.dumps([path, os.path.realpath(path), info.st_mtime_ns, info.st_size, *managed])

    def _remember(self, stamp: str, python: Python) -> None:
        known: dict[str, object] = dict(list((read_json(self._memory) or {}).items())[-50:])
        known[stamp] = list(astuple(python))
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._memory, known)
        except OSError:  # it only saves time
            pass


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _check_wanted(wanted: str) -> None:
    try:
        fits("3", wanted)
    except BadVersion as error:
        raise BadPython(str(error)) from error


def _names(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:  # a PATH may name what is not there
        return ()


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _ask(path: str, env: Mapping[str, str]) -> Python:
    plain = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
    try:
        answer = subprocess.run(
            [path, "-I", "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHECK_SECONDS,
            check=False,
            env=plain,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise BadPython(f"{path} did not start within {CHECK_SECONDS:g} seconds; {_OTHER}") from error
    except OSError as error:
        raise BadPython(f"{path} cannot be run: {error.strerror or error}; {_OTHER}") from error
    lines = answer.stdout.split("\n")
    if answer.returncode != 0 or len(lines) < 5 or not re.fullmatch(r"\d+\.\d+\.\d+", lines[0]):
        raise BadPython(_why_not(path, answer.returncode, answer.stderr))
    version, executable, prefix, platform, implementation = lines[:5]
    return Python(executable or path, version, prefix, platform, implementation)


def _why_not(path: str, code: int, said: str) -> str:
    """One sentence. What the program said is told only where it is one, such as a library that is missing."""
    if "shims" in Path(path).parts:
        return (
            f"{path} is a shim of a version manager that has no such Python active; "
            "name the interpreter behind it with --python"
        )
    lines = said.strip().splitlines()
    if len(lines) == 1 and "import sys" not in lines[0] and len(lines[0]) <= 300:
        return f"{path} does not run as a Python ({lines[0].strip()}); {_OTHER}"
    return f"{path} does not run as a Python: asked for its version it ended with code {code}; {_OTHER}"
