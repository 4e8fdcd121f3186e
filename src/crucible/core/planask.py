"""PlanAsk: a question where a job would run best, as it is sent. It is the body of a submission and more."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from crucible.core.resources import MAX_GPUS, MAX_SECONDS
from crucible.core.routing.wishes import Objective
from crucible.core.spec import JobSpec

MAIN = "main.py"
MAX_FILES = 400
MAX_FILE = 1_000_000
MAX_HOURS = MAX_SECONDS / 3600
MOST_OFFERS = 5000
PROGRAMS = (".py", ".ipynb")
READ = (*PROGRAMS, ".yaml", ".yml", ".json", ".toml", ".cfg")
"""Of a program's files those that say what it does."""
MOST = 6_000_000
"""Characters of a program that are read."""

_Path = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00]+$")]
_Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]+$")]

_PROCESSES = frozenset({"nproc_per_node", "num_processes", "num_gpus"})


class Program(NamedTuple):
    """Files by their paths, the one that is started, and its arguments."""

    files: Mapping[str, str]
    entry: str
    arguments: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The same for the same files, started in the same way."""
        return _digest(self.entry, *self.arguments, *(part for item in sorted(self.files.items()) for part in item))

    @property
    def script(self) -> str:
        """The same for the same code, whatever its arguments and settings are: those are read, and so accounted for."""
        code = sorted(item for item in self.files.items() if item[0] == self.entry or item[0].endswith(PROGRAMS))
        return _digest(self.entry, *(part for item in code for part in item))


def _digest(*parts: str) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = as_bytes(part)
        sha.update(b"%d:" % len(data) + data)
    return sha.hexdigest()


def processes_in(words: Sequence[str]) -> int | None:
    """Of what stands before the program's name, as the launchers of torch, accelerate and deepspeed take it."""
    for place, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.lstrip("-").replace("-", "_") in _PROCESSES:
            value = value or next(iter(words[place + 1 :]), "")
            return int(value) if value.isdecimal() and 0 < int(value) <= MAX_GPUS else None
    return None


def as_bytes(text: str) -> bytes:
    """What a file of this text holds; half characters, which JSON can bring, are no reason to fail."""
    return text.encode(errors="replace")


class PlanAsk(JobSpec):
    """What a submission says, the program's text, and what is wished of the place.

    The program is `code`, or `files` by their paths with the one that is started as `entry`: as far as it is written.
    `hours`: how long it takes, on a GPU of `gpu_types` if that names one type; without it the program is read for that.
    `interruptible` None: as the program is read. `backend` and `fallback` are an explicit choice.
    """

    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)] = ("python", MAIN)
    code: Annotated[str, Field(max_length=MAX_FILE)] | None = None
    files: Annotated[dict[_Path, str], Field(max_length=MAX_FILES)] = Field(default_factory=dict)
    entry: _Path | None = None
    optimize: Objective = Objective.COST
    allowed_backends: Annotated[tuple[_Name, ...], Field(max_length=64)] = ()
    dedicated: bool = False
    interruptible: bool | None = None
    hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] | None = None
    deadline_hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] | None = None
    every_region: bool = False
    """Each region's offer; otherwise of each machine type at a place the best."""
    limit: Annotated[int, Field(ge=1, le=MOST_OFFERS)] = 50

    @model_validator(mode="after")
    def _one_program(self) -> PlanAsk:
        if self.code is not None and self.files:
            raise ValueError("a program is given as code or as files, not both")
        if self.entry is not None and self.files and self.entry not in self.files:
            raise ValueError(f"the entry {self.entry!r} is not among the files")
        return self

    @property
    def program(self) -> Program | None:
        """None where there is nothing to read."""
        if self.code is not None:
            return Program({MAIN: self.code}, MAIN, self._arguments(MAIN))
        entry = self.entry or next((word for word in self.command if word in self.files), None)
        entry = entry or next((path for path in self.files if path.endswith(PROGRAMS)), None)
        return None if entry is None else Program(self.files, entry, self._arguments(entry))

    @property
    def processes(self) -> int | None:
        """How many of the program a launcher starts on a machine: `torchrun --nproc-per-node 4`; None: not said."""
        entry = self.program.entry if self.program else ""
        words = self.command[: self.command.index(entry)] if entry in self.command else ()
        return processes_in(words)

    def _arguments(self, entry: str) -> tuple[str, ...]:
        at = self.command.index(entry) if entry in self.command else len(self.command)
        return self.command[at + 1 :]
