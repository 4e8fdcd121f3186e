"""The types of payloads: what to run, and the files, command and Python it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible.client.payload.suggestions import nearest_file
from crucible.client.request.pythons import SubmitHost
from crucible.core.errors import BadInput
from crucible.core.job.spec import EnvironmentSpec, Source
from crucible.wire.files.archive import Entry
from crucible.wire.files.bundle import DEFAULT_LIMIT

JOB_FILES = frozenset({".yaml", ".yml", ".toml", ".json"})
"""Endings of job files."""


@dataclass(frozen=True)
class ModelOptions:
    """How to use a model. `items` are as `--config` takes them, relative to `folder`; they override `config`.

    `plugin` is a project or a requirement to install the model from (default: it is installed here).
    """

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    plugin: str | None = None
    inputs: Any = None
    callbacks: tuple[str, ...] = ()

    def merged_onto(self, base: ModelOptions) -> ModelOptions:
        """Merge onto `base`: scalars override; configs and callbacks append."""
        return replace(
            base,
            folder=self.folder,
            items=(*base.items, *self.items),
            plugin=self.plugin if self.plugin is not None else base.plugin,
            inputs=self.inputs if self.inputs is not None else base.inputs,
            callbacks=(*base.callbacks, *self.callbacks),
        )


@dataclass(frozen=True)
class CodeSource:
    """What to run, and the options for loading it.

    `kind` says what `target` is: `path` (a file, a folder or an address), `git`, `code`, `shell`, `function`, or
    `model` (its name). `kwargs` are for functions. `scratch` is a folder for clones, which must exist until the files
    are packed. `label` is the line of a job file that names the target, for errors.
    """

    host: SubmitHost
    kind: str = "path"
    target: object = ""
    arguments: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    model: ModelOptions | None = None
    python: str | None = None
    include: tuple[str, ...] = ()
    entry: str | None = None
    ref: str | None = None
    in_place: bool = False
    limit: int = DEFAULT_LIMIT
    scratch: Path | None = None
    label: str = ""

    @property
    def folder(self) -> Path:
        return self.host.folder

    @property
    def command_arguments(self) -> tuple[str, ...]:
        """The arguments as text, for a command line."""
        return tuple(map(str, self.arguments))


@dataclass(frozen=True)
class Payload:
    """Code ready to be sent: `entries` (None: nothing to send), or `in_place`, the local folder to run in.

    `workdir` is the folder of the entries to start in (default: their top). `notes` tell the user what was skipped or
    looks wrong. `sent` describes the entries; `left_out` names what is not sent although the program might need it.
    """

    command: tuple[str, ...]
    environment: EnvironmentSpec
    source: Source
    entries: tuple[Entry, ...] | None = None
    in_place: str | None = None
    workdir: str | None = None
    notes: tuple[str, ...] = ()
    sent: str = ""
    left_out: tuple[str, ...] = ()

    def fields(self) -> dict[str, object]:
        """Return the fields of the job that the payload fills."""
        names = ("command", "environment", "source", "in_place", "workdir")
        return {name: getattr(self, name) for name in names}


def refuse_entry(what: str, code_source: CodeSource) -> None:
    """Raise BadInput if an entry is named for a payload that has none."""
    if code_source.entry is not None:
        raise BadInput(
            f"{what} has no entry {code_source.entry!r}.",
            why="Only directories and repositories have one: the file to start.",
            fix="Leave out --entry (entry), or run the directory; --include sends further files.",
            field="entry",
        )


def not_found(path: Path, name: str) -> BadInput:
    """Return the error for a missing path, with the nearest existing name."""
    near = nearest_file(path.name, _names(path.parent))
    hint = f"Did you mean {str(Path(name).parent / near)!r}?" if near else "Check the path."
    return BadInput(f"{name} does not exist.", why=f"There is no {path}.", fix=hint, meant=near)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(item.name for item in folder.iterdir())
    except OSError:
        return []
