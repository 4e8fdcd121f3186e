"""Selects what a program names and its project's files lack: by its arguments, its code and its configuration files."""

from __future__ import annotations

import glob
import itertools
import json
import os
import tomllib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from crucible.client.payload.opened import Opened, find_opened, is_output
from crucible.client.payload.project import SMALL_BYTES, SMALL_FILES, walk_files, why_not_sent
from crucible.core.compute.resources import format_memory
from crucible.wire.files.bundle import IGNORE_FILE, MAX_FILES, ignore_rules
from crucible.wire.files.paths import is_inside

_MAX_CONFIG = 1_000_000
_MAX_VALUES = 10_000
_MAX_MATCHES = 10_000
_SYSTEM = ("/dev", "/proc", "/sys", "/etc", "/usr", "/bin", "/lib", "/tmp", "/var")  # noqa: S108


class Mention(IntEnum):
    """How a path is named, the strongest first."""

    ARGUMENT = 0
    READ = 1
    """A call in the code reads it."""
    WEAK = 2
    """It is in the code or in a configuration file."""


@dataclass
class Needed:
    """What is sent besides the project's files, as names below the root.

    `by_user` are those that arguments name; `left_out` says what cannot be sent, and what to do.
    """

    names: dict[str, None] = field(default_factory=dict)
    by_user: set[str] = field(default_factory=set)
    left_out: dict[str, None] = field(default_factory=dict)
    described: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """A script of the project `root`; it starts in `start`, and the user stands in `standing`."""

    root: Path
    path: Path
    text: str
    arguments: tuple[str, ...]
    start: Path
    standing: Path


def find_needed(script: Script, sent: Container[str], bytes_left: int, *, shared: bool) -> Needed:
    """Return what the script names and `sent` lacks. `shared`: the root is no project, but holds all kinds of files."""
    opened = find_opened(script.path, script.text, script.arguments, script.start)
    selection = _Selection(script, sent, bytes_left, shared)
    for text, mention in _mentions(script, opened):
        for path in _expand(script.start, text):
            selection.consider(path, text, mention)
    return selection.needed


def _mentions(script: Script, opened: Opened) -> Iterator[tuple[str, Mention]]:
    """Yield the paths that are named, the most certain first; folders after the files in them."""
    arguments = list(_argument_paths(script.arguments))
    for flag, text in arguments:
        if not is_output(flag) or ((script.start / text).is_file() and "out" not in flag and "log" not in flag):
            yield text, Mention.ARGUMENT
    yield from ((text, Mention.READ) for text, reads in opened.files.items() if reads)
    written = {os.path.normpath(text) for text in opened.written}
    configured = (value for _, text in arguments for value in _config_values(script.start / text))
    weak = [*(text for text, reads in opened.files.items() if not reads), *opened.folders, *configured]
    for text in sorted(dict.fromkeys(weak), key=lambda text: -text.count("/")):
        if not any(_is_below(os.path.normpath(text), folder) for folder in written):
            yield text, Mention.WEAK


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _argument_paths(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the words that may be paths, each with the option that it is the value of."""
    flag = ""
    for word in arguments:
        name, equals, value = word.partition("=")
        if equals and value:
            yield name, value
        if word.startswith("-"):
            flag = "" if equals else word
        else:
            yield flag, word
            flag = ""


def _config_values(path: Path) -> Iterator[str]:
    """Yield the texts in a configuration file (JSON, YAML, TOML) that may be paths; none for other files."""
    try:
        if path.suffix not in (".json", ".yaml", ".yml", ".toml") or path.stat().st_size > _MAX_CONFIG:
            return
        text = path.read_text(encoding="utf-8")
        content = _parse(path.suffix, text)
    except (OSError, ValueError, RecursionError):
        return
    pending: list[tuple[str, object]] = [("", content)]
    for _ in range(_MAX_VALUES):
        if not pending:
            return
        key, value = pending.pop()
        if isinstance(value, dict):
            pending.extend((str(name), inner) for name, inner in value.items())
        elif isinstance(value, list):
            pending.extend((key, inner) for inner in value)
        elif isinstance(value, str) and 0 < len(value) < 1024 and not is_output(key) and "://" not in value:
            yield value


def _parse(suffix: str, text: str) -> object:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        return tomllib.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError from error


def _expand(start: Path, text: str) -> list[Path]:
    """Return the paths that the text stands for; several for a pattern of glob."""
    try:
        path = Path(os.path.normpath(start / text))
        if not glob.has_magic(text) or os.path.lexists(path):
            return [path] if os.path.lexists(path) else []
        matches = itertools.islice(glob.iglob(str(path), recursive=True), _MAX_MATCHES)
        return sorted(map(Path, matches))
    except (OSError, ValueError, RecursionError):
        return []


class _Selection:
    def __init__(self, script: Script, sent: Container[str], bytes_left: int, shared: bool) -> None:
        self.needed = Needed()
        self._script = script
        self._sent = sent
        self._left = bytes_left
        self._shared = shared
        self._rules = ignore_rules(script.root)
        for flag, word in _argument_paths(script.arguments):
            self._check_standing(flag, word)

    def consider(self, path: Path, text: str, mention: Mention) -> None:
        """Add what is at the path, if it is not sent yet; or say why it is not sent."""
        root = self._script.root
        if _holds(path, self._script.path) or _holds(path, self._script.start) or _holds(path, root):
            return
        if not is_inside(root, path) or not path.is_relative_to(root):
            system = mention is not Mention.ARGUMENT and str(path).startswith(_SYSTEM)
            if mention is not Mention.WEAK and not system and (path.is_file() or path.is_dir()):
                self._leave_out(text, f"is outside {root} and is not sent", path)
            return
        name = path.relative_to(root).as_posix()
        if name in self._sent or name in self.needed.names:
            return
        if self._rules.ignores_on_the_way(name):
            if mention is not Mention.WEAK and not path.is_dir():
                self.needed.left_out[f"{name} is named, but {IGNORE_FILE} or a built-in rule leaves it out."] = None
            return
        self._add(path, name, mention)

    def _add(self, path: Path, name: str, mention: Mention) -> None:
        root = self._script.root
        is_folder = path.is_dir() and not path.is_symlink()
        found = list(itertools.islice(walk_files(root, self._rules, name), MAX_FILES + 1)) if is_folder else [name]
        missing = [one for one in found if one not in self._sent and one not in self.needed.names]
        missing = [one for one in missing if why_not_sent(root, one) is None]
        if not missing:
            return
        size = sum((root / one).lstat().st_size for one in missing)
        bytes_left, files = self._left, MAX_FILES
        if is_folder and self._shared:
            bytes_left, files = min(bytes_left, SMALL_BYTES), SMALL_FILES
        if size > bytes_left or len(missing) > files:
            if not any(_is_below(one, name) for one in self.needed.names):
                why = f"({format_memory(size)}) is not sent: with it there would be more than may be sent"
                self._leave_out(name, why, path)
            return
        self._left -= size
        self.needed.names.update(dict.fromkeys(missing))
        self.needed.described = {one: None for one in self.needed.described if not _is_below(one, name)}
        self.needed.described[name] = None
        if mention is Mention.ARGUMENT:
            self.needed.by_user.update((name,) if not is_folder else ())

    def _leave_out(self, text: str, why: str, path: Path) -> None:
        option = f"--data {path} passes it, as $CRUCIBLE_DATA_DIR/{path.name}."
        self.needed.left_out[f"{text} {why}. {option}"] = None

    def _check_standing(self, flag: str, word: str) -> None:
        """Say that an argument names a file where the user stands which the program does not find where it starts."""
        script = self._script
        if script.standing == script.start or is_output(flag) or os.path.isabs(word) or "/" not in word:
            return
        if os.path.lexists(script.standing / word) and not os.path.lexists(script.start / word):
            self.needed.left_out[
                f"{word} exists where you stand, but the program starts in {script.start}."
                " Stand inside the project, or name it relative to that folder."
            ] = None


def _holds(folder: Path, path: Path) -> bool:
    return path.is_relative_to(folder)


def describe_names(names: Sequence[str], most: int = 3) -> str:
    """Return the names, of many the first."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
