"""Finds the project that a script belongs to, and the files of it that are sent."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from crucible.client.payload.git_state import list_files, list_tracked, work_tree
from crucible.client.payload.secret_files import looks_secret
from crucible.core.compute.resources import format_memory
from crucible.wire.files.bundle import IGNORE_FILE, MAX_FILES, ignore_rules
from crucible.wire.files.ignore import IgnoreRules
from crucible.wire.files.paths import UnsafePath, has_link_loop, is_inside, safe_name

SMALL_BYTES = 100_000_000
SMALL_FILES = 2_000
"""Up to here a folder without git is sent as a whole."""

MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml", IGNORE_FILE)
"""Files that mark the top folder of a project without git."""
_COLLECTIONS = ("Desktop", "Documents", "Downloads")
_USERS = frozenset({Path("/home"), Path("/Users")})


@dataclass(frozen=True)
class Project:
    """The folder that a script belongs to. `files` are those to send, as names below `root`.

    `too_large` says why it is not sent as a whole; `files` is then empty. `left_out` says of each file that is
    never sent without being named, by its name, why that is so.
    """

    root: Path
    kind: str
    files: tuple[str, ...] = ()
    too_large: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def find_project(folder: Path, environ: Mapping[str, str], limit: int) -> Project | None:
    """Return the git work tree that `folder` is in, else the folder of its project; None if that is no project.

    A home folder, `/` and folders for temporary files are none, though folders in them may be. Nothing is run.
    """
    tree = work_tree(folder)
    if tree is not None and not _is_shared(tree, environ):
        return _of_git(tree, environ, limit)
    root = _project_folder(folder, environ)
    return None if root is None else _of_folder(root, environ, min(limit, SMALL_BYTES))


def _project_folder(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the nearest folder with a marker of a project, else the folder itself; None for a shared folder."""
    if _is_shared(folder, environ):
        return None
    for above in (folder, *folder.parents):
        if _is_shared(above, environ):
            break
        if any((above / name).is_file() for name in MARKERS):
            return above
    return folder


def _is_shared(folder: Path, environ: Mapping[str, str]) -> bool:
    """Return whether the folder holds all kinds of files: a home folder, `/`, /tmp, or one above them."""
    homes = {Path(home).resolve() for home in (environ.get("HOME"), os.path.expanduser("~")) if home}
    temporary = {Path(name).resolve() for name in ("/tmp", "/var/tmp", tempfile.gettempdir())}  # noqa: S108
    collections = {home / name for home in homes for name in _COLLECTIONS}
    above = {parent for shared in (*homes, *temporary) for parent in shared.parents}
    return folder in homes | temporary | collections | above or folder.parent in _USERS


def _of_git(root: Path, environ: Mapping[str, str], limit: int) -> Project:
    names, tracked = list_files(root) or (), list_tracked(root)
    rules = ignore_rules(root)
    kept = (name for name in names if not rules.ignores_on_the_way(name))
    return _select(root, "git work tree", kept, tracked, environ, (limit, MAX_FILES))


def _of_folder(root: Path, environ: Mapping[str, str], limit: int) -> Project:
    return _select(root, "folder", walk_files(root, ignore_rules(root)), frozenset(), environ, (limit, SMALL_FILES))


def walk_files(root: Path, rules: IgnoreRules, top: str = "") -> Iterator[str]:
    """Yield the files in the folder `top` that are not ignored, and links as themselves, as names below `root`."""
    for folder, folders, files in os.walk(root / top):
        below = PurePosixPath(Path(folder).relative_to(root).as_posix())
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(
            name for name in folders if name not in links and not rules.ignores(str(below / name), is_folder=True)
        )
        for name in sorted((*files, *links)):
            if not rules.ignores(str(below / name)):
                yield str(below / name)


def _select(
    root: Path,
    kind: str,
    names: Iterator[str],
    tracked: frozenset[str],
    environ: Mapping[str, str],
    limits: tuple[int, int],
) -> Project:
    """Return the project with the files that can be sent and hold no secrets."""
    files: list[str] = []
    left_out: dict[str, str] = {}
    size, own = 0, _OwnFolders(root, environ)
    for name in names:
        if name not in tracked and own.holds(name):
            continue
        why = why_not_sent(root, name) or ("looks like a secret" if _is_secret(root, name, tracked) else "")
        if why:
            left_out[name] = f"{name} is not sent: it {why}.{_option(name, why)}"
            continue
        files.append(name)
        size += (root / name).lstat().st_size
        if size > limits[0] or len(files) > limits[1]:
            over = f"more than {format_memory(limits[0])}" if size > limits[0] else f"more than {limits[1]:,} files"
            return Project(root, kind, (), over)
    return Project(root, kind, tuple(files), "", left_out)


def _is_secret(root: Path, name: str, tracked: frozenset[str]) -> bool:
    return name not in tracked and looks_secret(root, name)


def _option(name: str, why: str) -> str:
    return f" --include {name} sends it." if why == "looks like a secret" else ""


def why_not_sent(root: Path, name: str) -> str | None:
    """Return why a file cannot be part of a bundle, to complete `it ...`; None if it can."""
    path = root / name
    try:
        safe_name(name)
        mode = path.lstat().st_mode
    except UnsafePath as error:
        return error.why
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not _is_within(root, path.parent):
        return "leads out of the project through a link"
    if stat.S_ISLNK(mode):
        if has_link_loop(path):
            return "is a link that leads to itself"
        return None if is_inside(root, path) else f"is a link to {os.readlink(path)}, outside the project"
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        return "is a pipe, a socket or a device"
    return None if os.access(path, os.R_OK) else "cannot be read (Permission denied)"


def _is_state(folder: Path) -> bool:
    """Return whether an embedded server keeps its state there."""
    return all((folder / name).exists() for name in ("server.lock", "key", "machines"))


@lru_cache(maxsize=4096)
def _is_within(root: Path, folder: Path) -> bool:
    return is_inside(root, folder)


class _OwnFolders:
    """Folders that are no part of a program wherever they lie: virtual environments and Crucible's own state."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root = root
        home = environ.get("CRUCIBLE_HOME")
        self._state = Path(home).expanduser().resolve() if home else None
        self._known: dict[PurePosixPath, bool] = {PurePosixPath("."): False}

    def holds(self, name: str) -> bool:
        return self._is_own(PurePosixPath(name).parent)

    def _is_own(self, folder: PurePosixPath) -> bool:
        if folder not in self._known:
            path = self._root / folder
            environment = (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()
            own = environment or path == self._state or _is_state(path)
            self._known[folder] = own or self._is_own(folder.parent)
        return self._known[folder]
