"""Finds and checks the Pythons of a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.files import read_json, write_json

CHECK_SECONDS = 30.0
_ASK = (
    "import sys, platform; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable); "
    "print(sys.prefix); print(sys.platform + '-' + platform.machine())"
)


class BadPython(Exception):
    """The interpreter cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Python:
    """A Python that runs. `platform` is where its wheels belong, such as `linux-x86_64`."""

    path: str
    version: str
    prefix: str
    platform: str


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
            raise BadPython(f"there is no interpreter {path} on this machine; choose another with --python")
        if not os.access(path, os.X_OK):
            raise BadPython(f"{path} is not executable; choose another interpreter with --python")
        python = self._check(path)
        return Python(path, python.version, python.prefix, python.platform)

    def default(self, version: str | None = None) -> Python:
        """The first python3 on the PATH (or of that version) that is not ours."""
        names = ["python3", "python"] if version is None else [f"python{version}", "python3", "python"]
        for path in self._on_path(names):
            try:
                python = self._check(path)
            except BadPython:
                continue
            if not self._is_ours(python) and _is_version(python, version):
                return python
        wanted = "python3" if version is None else f"Python {version}"
        raise BadPython(f"this machine has no {wanted} on its PATH; install it, or name one with --python")

    def _on_path(self, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            for folder in self._env.get("PATH", os.defpath).split(os.pathsep):
                path = os.path.join(folder, name)
                if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
                    yield path

    def _is_ours(self, python: Python) -> bool:
        prefix = os.path.realpath(python.prefix)
        return any(prefix == ours or prefix.startswith(ours + os.sep) for ours in self._avoid)

    def _check(self, path: str) -> Python:
        stamp = self._stamp(path)
        known = (read_json(self._memory) or {}).get(stamp)
        if isinstance(known, list) and len(known) == 4:
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
        known[stamp] = [python.path, python.version, python.prefix, python.platform]
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._memory, known)
        except OSError:  # it only saves time
            pass


def _is_version(python: Python, version: str | None) -> bool:
    return version is None or (python.version + ".").startswith(version.rstrip(".*") + ".")


def _ask(path: str, env: Mapping[str, str]) -> Python:
    plain = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
    try:
        answer = subprocess.run(
            [path, "-I", "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
            env=plain,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadPython(f"{path} does not run: {error}") from error
    lines = answer.stdout.split("\n")
    if answer.returncode != 0 or len(lines) < 4:
        said = (answer.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BadPython(f"{path} does not run as a Python: {said}")
    version, executable, prefix, platform = lines[:4]
    return Python(executable or path, version, prefix, platform)
