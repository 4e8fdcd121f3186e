"""Reads the git state of the folder that code is in; all functions return nothing outside a work tree.

Nothing is run that the folder names: not its filters, hooks, monitors, diff drivers and remotes, nor its submodules'.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.core.job.spec import MAX_DIFF, Source, SourceKind

GIT_SECONDS = 30.0

_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "submodule.recurse=false")
"""Settings that keep git from running what the repository's own settings name."""

_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_TERMINAL_PROMPT": "0"}
"""In a partial clone git would fetch missing objects, with the programs that the remote's settings name."""

_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
)
"""Variables that make git use another repository than that of its folder, as a git hook has them."""

_SUBMODULES = "--ignore-submodules=dirty"
"""Compares a submodule's commit alone: for its files git would run itself in there, with the submodule's settings."""

_DEEPEST = 8
"""Repositories within repositories that are read."""

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


def work_tree(folder: Path) -> Path | None:
    """Return the top folder of the work tree that `folder` is in, or None.

    The settings of a repository may name any other folder as its work tree: that is not followed.
    """
    out = _git(folder, "rev-parse", "--show-toplevel")
    if not out or not out.strip():
        return None
    top = Path(os.fsdecode(out).removesuffix("\n")).resolve()
    return top if (top / ".git").exists() and folder.resolve().is_relative_to(top) else None


def list_files(folder: Path) -> tuple[str, ...] | None:
    """Return the files below `folder` that git tracks or would add; None outside a work tree.

    Of a submodule and of a repository within the folder, these are the files that it tracks or would add itself.
    """
    return _list(folder, "--cached", "--others", "--exclude-standard")


def list_tracked(folder: Path) -> frozenset[str]:
    """Return the files below `folder` that git tracks, those of submodules included."""
    return frozenset(_list(folder, "--cached") or ())


def _list(folder: Path, *which: str, depth: int = 0) -> tuple[str, ...] | None:
    out = _git(folder, "ls-files", "-z", *which)
    if out is None:
        return None
    names = dict.fromkeys(name.rstrip("/") for name in out.decode(errors="replace").split("\0") if name)
    return tuple(dict.fromkeys(found for name in names for found in _within(folder, name, which, depth)))


def _within(folder: Path, name: str, which: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield the name, or for the folder of another repository the files in it."""
    path = folder / name
    if depth == _DEEPEST or path.is_symlink() or not (path / ".git").exists():
        yield name
        return
    inner = _list(path, *which, depth=depth + 1)
    yield from (name,) if inner is None else (f"{name}/{below}" for below in inner)


def without_repository(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what makes git use another repository than that of its folder."""
    return {name: value for name, value in environ.items() if name not in _REPOSITORY}


def git_state(folder: Path, names: Sequence[str] = (".",)) -> GitState:
    """Return the commit of `folder`, and the changes of the named files since it."""
    head = _git(folder, "rev-parse", "HEAD")
    if head is None:
        return GitState()
    commit = head.decode().strip()
    without_filters = _filters_off(folder)
    if without_filters is None:
        return GitState(commit)
    status = _git(folder, "status", "--porcelain", "-z", _SUBMODULES, "--", *names, settings=without_filters)
    shown = ("--no-ext-diff", "--no-textconv", "--submodule=short", _SUBMODULES)
    diff = _git(folder, "diff", *shown, "HEAD", "--", *names, settings=without_filters)
    return GitState(commit, bool(status), _cut(diff.decode(errors="replace")) if diff else None)


def _filters_off(folder: Path) -> tuple[str, ...] | None:
    """Return the settings that turn every content filter off; None if one cannot be, so that nothing may be compared.

    Git has no option for it. Files are compared as they are; those whose time and size did not change are not read.
    """
    listed = _git(folder, "config", "--list", "--name-only", "-z")
    if listed is None:
        return None
    filters = {name.rpartition(".")[0] for name in os.fsdecode(listed).split("\0") if name.startswith("filter.")}
    if any("=" in name for name in filters):  # `-c` would take it for the end of the name
        return None
    off = ("clean=", "smudge=", "process=", "required=false")
    return tuple(f"{name}.{setting}" for name in sorted(filters) for setting in off)


def _cut(diff: str) -> str:
    if len(diff) <= MAX_DIFF:
        return diff
    return diff[: MAX_DIFF - len(_CUT)] + _CUT


def _git(folder: Path, *arguments: str, settings: Sequence[str] = ()) -> bytes | None:
    given = [part for setting in (*_SETTINGS, *settings) for part in ("-c", setting)]
    try:
        done = subprocess.run(
            ["git", *given, "--no-pager", "--no-optional-locks", "--literal-pathspecs", *arguments],
            cwd=folder,
            env={**without_repository(os.environ), **_NO_FETCH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
