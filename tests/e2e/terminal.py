"""A user at a terminal: the real `crucible` command on an empty state folder.

A test that is not about the first command starts the server itself: that costs it a tenth.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from tests.harness import Deployment, View

Done = subprocess.CompletedProcess[str]

_NOT_OURS = ("VIRTUAL_ENV", "CONDA_PREFIX")


class Terminal:
    """`folder` is the working directory; write files into it and run commands there."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        self.crucible = Deployment(folder, env)
        for name in _NOT_OURS:
            self.crucible.env.pop(name, None)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def home(self) -> Path:
        return self.crucible.home

    def write(self, **files: str) -> Path:
        """Write Python files to the working directory (`a__b` is `a/b.py`); return the first path."""
        paths = [self.folder / f"{name.replace('__', '/')}.py" for name in files]
        for path, text in zip(paths, files.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return paths[0]

    def run(self, *arguments: str, **more: Any) -> Done:
        """Run a command to its end."""
        more.setdefault("cwd", self.folder)
        env = {**self.crucible.env, **more.pop("env", {})}
        return self.crucible.command(arguments, env, 60, **more)

    def ok(self, *arguments: str, **more: Any) -> str:
        """Run a command that must succeed; return its standard output."""
        done = self.run(*arguments, **more)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def json(self, *arguments: str, **more: Any) -> Any:
        return json.loads(self.ok(*arguments, "--json", **more))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in the background, as leader of its own process group like one at a terminal."""
        return subprocess.Popen(
            [sys.executable, "-m", "crucible", *arguments],
            env=self.crucible.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def is_up(self) -> bool:
        try:
            return psutil.Process(self.crucible.discovery["pid"]).status() != psutil.STATUS_ZOMBIE
        except (OSError, psutil.NoSuchProcess):
            return False

    def jobs(self) -> list[View]:
        """Return all jobs; none if no server was ever started."""
        return list(self.crucible.get("/api/v1/jobs", limit=500)["items"]) if self.is_up() else []

    def close(self) -> None:
        pid = self.crucible.discovery["pid"] if self.is_up() else None
        self.run("down", "--yes")
        if pid is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        self.crucible.close()
