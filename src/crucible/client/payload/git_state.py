"""Asking git about the folder that code is in. No answer means: not a work tree."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.core.job.spec import MAX_DIFF, Source, SourceKind

GIT_SECONDS = 30.0

# A repository's own settings may name programs to run; looking at it must not run any.
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_CUT = "\n[cut here: the changes are longer than 256 KiB]\n"


@dataclass(frozen=True)
class GitState:
    """Where the files were in their history. `diff` holds what is not committed."""

    commit: str | None = None
    dirty: bool = False
    diff: str | None = None

    def source(self, kind: SourceKind, path: Path, ref: str | None = None) -> Source:
        """What is kept of code that lay at `path`, for reproducing it."""
        return Source(kind=kind, path=str(path), ref=ref, commit=self.commit, dirty=self.dirty, diff=self.diff)


def list_files(folder: Path) -> tuple[str, ...] | None:
    """The files git knows or would add below `folder`; None outside a work tree."""
    out = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if out is None:
        return None
    return tuple(dict.fromkeys(name for name in out.split("\0") if name))


def git_state(folder: Path, names: Sequence[str] = (".",)) -> GitState:
    """The commit that `folder` is at, and how the named files below it differ from it."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return GitState()
    status = _git(folder, "status", "--porcelain", "-z", "--", *names)
    diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "HEAD", "--", *names)
    return GitState(commit.strip(), bool(status), _cut(diff) if diff else None)


def _cut(diff: str) -> str:
    if len(diff) <= MAX_DIFF:
        return diff
    return diff[: MAX_DIFF - len(_CUT)] + _CUT


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *_SAFE, "--literal-pathspecs", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None
