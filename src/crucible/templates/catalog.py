"""The templates that come with Crucible, read from their folders when asked for.

A template is a folder here with a `template.toml` and the files it lists. Nothing of it is imported: its
scripts run in a job, in an environment of their own.
"""

from __future__ import annotations

import functools
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from crucible.core.errors import Conflict, UnknownName

HERE = Path(__file__).parent
DESCRIPTION = "template.toml"


@dataclass(frozen=True)
class Preset:
    """A size of a template. `gpus` is how many it wants to be of use."""

    name: str
    description: str
    gpus: int = 0


@dataclass(frozen=True)
class Template:
    """`files` are relative to `folder`; `command` is what runs the default preset in a copy of them."""

    name: str
    title: str
    description: str
    entry: str
    command: tuple[str, ...]
    files: tuple[str, ...]
    presets: tuple[Preset, ...]
    requirements: tuple[str, ...]
    folder: Path


def names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in HERE.glob(f"*/{DESCRIPTION}")))


def templates() -> tuple[Template, ...]:
    return tuple(get(name) for name in names())


def get(name: str) -> Template:
    """Raises UnknownName, with the nearest name that there is."""
    if name not in names():
        raise UnknownName("template", name, names(), fix="`crucible templates` lists them.")
    return _read(HERE / name)


def copy_to(name: str, folder: Path) -> tuple[Path, ...]:
    """Copies the template's files into `folder`, which is made if need be; gives the paths written.

    Nothing is overwritten: raises Conflict, and copies nothing, if one of the files is there already.
    """
    template = get(name)
    taken = [file for file in template.files if (folder / file).exists() or (folder / file).is_symlink()]
    if taken:
        raise Conflict(
            f"{folder} already has {', '.join(taken[:3])}{' and others' if len(taken) > 3 else ''}.",
            fix="Name another folder, or remove these files.",
        )
    return tuple(_copied(template.folder / file, folder / file) for file in template.files)


@functools.cache
def _read(folder: Path) -> Template:
    document = tomllib.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    return Template(
        name=folder.name,
        title=str(document["title"]),
        description=str(document["description"]),
        entry=str(document["entry"]),
        command=tuple(str(word) for word in document["command"]),
        files=tuple(str(file) for file in document["files"]),
        presets=tuple(Preset(**preset) for preset in document["presets"]),
        requirements=_requirements(folder / "requirements.txt"),
        folder=folder,
    )


def _requirements(path: Path) -> tuple[str, ...]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _copied(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target
