"""Reads the git state of the folder that code is in; all functions return nothing outside a work tree."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.core.job.spec import MAX_DIFF, Source, SourceKind

GIT_SECONDS = 30.0

# A repository's settings may name programs, which reading its state must not run.
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_CUT = "\n[cut here: the changes are longer than 256 KiB]\n"


@dataclass(frozen=True)
class GitState:
    """The commit of the files; `diff` holds uncommitted changes."""

    commit: str | None = None
    dirty: bool = False
    diff: str | None = None

    def source(self, kind: SourceKind, path: Path, ref: str | None = None) -> Source:
        """Return the record of code at `path` that is kept to reproduce the job."""
        return Source(kind=kind, path=str(path), ref=ref, commit=self.commit, dirty=self.dirty, diff=self.diff)


def list_files(folder: Path) -> tuple[str, ...] | None:
    """Return the files below `folder` that git tracks or would add; None outside a work tree."""
    out = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if out is None:
        return None
    return tuple(dict.fromkeys(name for name in out.split("\0") if name))


def git_state(folder: Path, names: Sequence[str] = (".",)) -> GitState:
    """Return the commit of `folder`, and the changes of the named files since it."""
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
