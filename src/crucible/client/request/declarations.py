"""Reads the requirements that code declares: a PEP 723 block, requirements.txt, pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crucible.core.errors import BadInput
from crucible.core.job.spec import EnvironmentSpec
from crucible.wire.files.paths import is_inside

_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_INCLUDE = re.compile(r"^(?:-r|--requirement)(?:\s+|=)(.+)$")
_EDITABLE = re.compile(r"^(?:-e|--editable)(?:\s+|=)(.+)$")
_OTHER_FILE = re.compile(r"^(?:-c|--constraint)(?:\s+|=)(.+)$")
_COMMENT = re.compile(r"(^|\s+)#.*$")


class NotToml(BadInput):
    """A file that should be TOML is not."""


@dataclass(frozen=True)
class Code:
    """Code that needs a Python: its folder, the entry in it, and the entry's text.

    `whole`: the whole folder is sent with the job, not only the entry and its imports.
    """

    root: Path | None = None
    entry: str | None = None
    text: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Declaration:
    """The environment that code declares, if any, and notes on files that could not be read."""

    environment: EnvironmentSpec | None
    notes: tuple[str, ...] = ()


def read_declaration(code: Code) -> Declaration:
    """Return what the script block declares, else requirements.txt or pyproject.toml (entry's folder, then the top)."""
    block = script_block(code)
    if block is not None:
        return Declaration(block)
    notes: list[str] = []
    for folder in _folders(code):
        try:
            environment = _in_folder(code, folder)
        except NotToml as error:
            notes.append(f"{error.what.rstrip('.')}, so its dependencies are unknown ({error.why})")
            continue
        if environment is not None:
            return Declaration(environment, tuple(notes))
    return Declaration(None, tuple(notes))


def script_block(code: Code) -> EnvironmentSpec | None:
    """Return the environment of a PEP 723 block; None if there is none, or it is empty.

    A block with only `requires-python` gives an environment with `python` alone.
    """
    name = code.entry or "the code"
    blocks = [block for block in _BLOCK.finditer(code.text) if block["type"] == "script"]
    if not blocks:
        return None
    if len(blocks) > 1:
        raise BadInput(f"{name} has {len(blocks)} `# /// script` blocks.", fix="Keep one of them.")
    content = "".join(
        line[2:] if line.startswith("# ") else line[1:] for line in blocks[0]["content"].splitlines(keepends=True)
    )
    # Prepend empty lines, so that an error has the line number of the file.
    above = "\n" * (code.text.count("\n", 0, blocks[0].start()) + 1)
    fix = "Correct the block (https://peps.python.org/pep-0723/ shows one), or remove it and pass --python."
    table = _toml(above + content, f"The `# /// script` block of {name}", fix)
    dependencies = _strings(table, "dependencies", name)
    python = _text(table, "requires-python", name)
    if not dependencies and not python:
        return None
    return EnvironmentSpec(requirements=dependencies, python=python, origin=f"the script block in {name}")


def _folders(code: Code) -> Iterator[Path]:
    """Yield the entry's folder, then the top folder."""
    if code.root is None:
        return
    beside = (code.root / code.entry).parent if code.entry else code.root
    yield beside
    if beside != code.root:
        yield code.root


def _in_folder(code: Code, folder: Path) -> EnvironmentSpec | None:
    assert code.root is not None
    requirements, pyproject = folder / "requirements.txt", folder / "pyproject.toml"
    if requirements.is_file():
        environment = _from_requirements(code.root, requirements)
        if environment is not None and (code.whole or environment.project is None):
            return environment
    if pyproject.is_file():
        return _from_pyproject(code.root, pyproject, whole=code.whole)
    return None


@dataclass(frozen=True)
class _Requirements:
    lines: tuple[str, ...]
    project: str | None


def _from_requirements(root: Path, file: Path) -> EnvironmentSpec | None:
    """Return the environment of a requirements file inside `root`; None if it is empty."""
    requirements = _read_requirements(root, file, seen=frozenset())
    name = _display_path(root, file)
    if requirements.project is not None and requirements.lines:
        raise BadInput(
            f"{name} mixes `-e {requirements.project}` with other requirements.",
            why="A job's environment is built from one of them.",
            fix="List them in pyproject.toml, or pass --python with an environment of your own.",
        )
    if requirements.project is not None:
        return EnvironmentSpec(project=requirements.project, origin=f"the project named in {name}")
    if not requirements.lines:
        return None
    return EnvironmentSpec(requirements=requirements.lines, origin=name)


def _from_pyproject(root: Path, file: Path, *, whole: bool) -> EnvironmentSpec | None:
    """Return the environment of a pyproject.toml; None if it declares none. Raises NotToml.

    `whole`: its folder is sent with the job, so the project itself can be installed.
    """
    name = _display_path(root, file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotToml(f"{file} cannot be read.", why=str(error), fix="Correct or remove it.") from error
    table = _toml(text, str(file), "Correct it there, or remove it.")
    project = table.get("project")
    if whole and "build-system" in table:
        folder = file.parent.relative_to(root).as_posix()
        return EnvironmentSpec(project=folder, origin=f"the project in {name}")
    if not isinstance(project, dict):
        return None
    dependencies = _strings(project, "dependencies", name)
    if not dependencies:
        return None
    python = _text(project, "requires-python", name)
    return EnvironmentSpec(requirements=dependencies, python=python, origin=f"the dependencies in {name}")


def _read_requirements(root: Path, file: Path, seen: frozenset[Path]) -> _Requirements:
    lines: list[str] = []
    project: str | None = None
    for line in _logical_lines(root, file):
        if include := _INCLUDE.match(line):
            path = _included(root, file, include[1])
            if path in seen or path == file:
                continue
            below = _read_requirements(root, path, seen | {file})
            lines.extend(below.lines)
            project = below.project or project
        elif editable := _EDITABLE.match(line):
            project = _project(root, file, editable[1])
        else:
            lines.append(_plain(root, file, line))
    return _Requirements(tuple(dict.fromkeys(lines)), project)


def _logical_lines(root: Path, file: Path) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{_display_path(root, file)} is not UTF-8 text.", fix="Save it as UTF-8.") from error
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        stripped = _COMMENT.sub("", line).strip()
        if stripped:
            yield stripped


def _included(root: Path, file: Path, name: str) -> Path:
    path = (file.parent / name.strip()).resolve()
    if not is_inside(root, path):
        raise BadInput(
            f"{_display_path(root, file)} includes {name}, which is outside {root}.",
            why="Only files of the folder are sent with the job.",
            fix="Copy that file into the folder.",
        )
    if not path.is_file():
        raise BadInput(f"{_display_path(root, file)} includes {name}, which does not exist.", fix="Correct the line.")
    return path


def _project(root: Path, file: Path, target: str) -> str:
    path = (file.parent / target.strip()).resolve()
    if not is_inside(root, path) or not (path / "pyproject.toml").is_file():
        raise BadInput(
            f"{_display_path(root, file)} has `-e {target}`, which is not a project inside the folder.",
            fix="Name it without -e and with a URL, or pass --python with an environment of your own.",
        )
    return path.relative_to(root.resolve()).as_posix()


def _plain(root: Path, file: Path, line: str) -> str:
    if line.startswith((".", "file:.")) or _OTHER_FILE.match(line):
        raise BadInput(
            f"{_display_path(root, file)} has the line {line!r}, which names a file.",
            why="The environment is built without this folder.",
            fix="Use a version or a URL, or pass --python with an environment of your own.",
        )
    return line


def _display_path(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name


def _toml(text: str, where: str, fix: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(f"{where} is not valid TOML.", why=f"{error}.", fix=fix) from error


def _strings(table: dict[str, object], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadInput(f"{key!r} in {where} is not a list of strings.", fix=f'Write it as {key} = ["numpy"].')
    return tuple(value)


def _text(table: dict[str, object], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{key!r} in {where} is not a string.", fix=f'Write it as {key} = ">=3.11".')
    return value
