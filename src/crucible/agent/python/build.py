"""Build a Python environment with uv, or with pip if uv fails in a way that pip may not."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.files import write_file
from crucible.agent.python.pip_settings import uv_variables
from crucible.agent.runner.staging_context import StagingContext, StagingError
from crucible.wire.documents.desired import Environment

BUILD_SECONDS = 3600.0
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__", "node_modules")
_PIP_MAY_SUCCEED = re.compile(
    # uv does not run here, or does not support this Python
    r"^cannot run |failed to (inspect|query) python"
    # TLS and the network: pip may have other certificates, proxies and passwords
    r"|peer certificate|unknownissuer|tls handshake|error sending request|client error \(connect\)|dns error"
    r"|connection (refused|reset|closed)|timed out|network is unreachable|\(40[137] |server error \(5"
    # indexes that uv reads differently from pip
    r"|index-strategy|subsequent index|no wheels? with a matching|no usable wheels",
    re.IGNORECASE,
)
_ERROR_BEGINS = re.compile(r"\s*(error\b|×|x )", re.IGNORECASE)


@dataclass(frozen=True)
class EnvironmentBuild:
    """Builds in `home` itself, because an environment cannot be moved. A marker, written last, shows completeness.

    `python` is an interpreter of this machine, or None: then uv downloads one that matches `wanted`.
    """

    work: StagingContext
    home: Path
    python: str | None
    wanted: str | None
    env: Mapping[str, str]
    uv: str | None

    def run(self, environment: Environment, project: Path | None) -> None:
        """Build the environment. Raises StagingError, StagingAborted; a failed build leaves nothing."""
        try:
            error = self._build(self._installed(environment, project))
            if error is not None:
                raise StagingError(f"the environment could not be built: {error}")
            write_file(self.home / ".complete", b"", durable=True)
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(scratch_folder(self.home), ignore_errors=True)

    def _build(self, installed: tuple[str, ...]) -> str | None:
        """Return None, or the errors, uv's first."""
        if self.uv is None:
            return self._with_pip(installed)
        uv_error = self._with_uv(self.uv, installed)
        if uv_error is None or self.python is None or not _PIP_MAY_SUCCEED.search(uv_error):
            return uv_error
        self.work.note("uv could not build the environment; trying pip")
        pip_error = self._with_pip(installed)
        return None if pip_error is None else f"{uv_error}\nNor could pip: {pip_error}"

    def _installed(self, environment: Environment, project: Path | None) -> tuple[str, ...]:
        """Return what to install, as arguments. A project is copied, because a build leaves files in its folder."""
        folder = scratch_folder(self.home)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if project is not None:
            copy = folder / "project"
            shutil.copytree(project, copy, symlinks=True, ignore=_NOT_COPIED)
            return (str(copy),)
        if not environment.requirements:
            return ()
        listed = folder / "requirements.txt"
        listed.write_text("\n".join(environment.requirements) + "\n", encoding="utf-8")
        return ("-r", str(listed))

    def _with_uv(self, uv: str, installed: tuple[str, ...]) -> str | None:
        shutil.rmtree(self.home, ignore_errors=True)
        python = self.python or self.wanted
        assert python is not None
        steps: list[tuple[str, ...]] = [(uv, "venv", "--quiet", "--no-project", "--python", python, str(self.home))]
        if installed:
            steps.append((uv, "pip", "install", "--python", self._target, *installed))
        return self._steps(steps, {**uv_variables(self.env), **self.env})

    def _with_pip(self, installed: tuple[str, ...]) -> str | None:
        shutil.rmtree(self.home, ignore_errors=True)
        assert self.python is not None
        error = self._steps([(self.python, "-m", "venv", str(self.home))], self.env)
        if error is not None and re.search(r"ensurepip|No module named .?venv", error):
            return f"{error}\nInstall this Python's venv module (on Debian: apt install python3-venv), or uv."
        if error is not None or not installed:
            return error
        return self._steps([(self._target, "-m", "pip", "install", "--no-input", *installed)], self.env)

    @property
    def _target(self) -> str:
        return str(self.home / "bin" / "python")

    def _steps(self, commands: list[tuple[str, ...]], env: Mapping[str, str]) -> str | None:
        for command in commands:
            done, last = self.work.run(command, scratch_folder(self.home), env, BUILD_SECONDS)
            if not done:
                return _error_in(last) or f"{command[0]} failed"
        return None


def scratch_folder(home: Path) -> Path:
    """Return the folder for temporary files of this environment's build."""
    return home.with_name(home.name + ".scratch")


def _error_in(text: str) -> str:
    """Return the text from the beginning of the error on, because the length of a job's reason is limited."""
    lines = text.splitlines()
    begins = (number for number, line in enumerate(lines) if _ERROR_BEGINS.match(line))
    return "\n".join(lines[next(begins, 0) :])
