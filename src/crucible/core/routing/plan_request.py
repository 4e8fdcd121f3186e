"""PlanRequest: which job, which program and which goal a plan is for. Its body is that of a submission and more."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crucible.core.compute.offers import Market
from crucible.core.compute.resources import MAX_GPUS, MAX_SECONDS
from crucible.core.job.spec import JobSpec

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


class Objective(enum.StrEnum):
    COST = "cost"
    SPEED = "speed"
    BALANCED = "balanced"
    DEADLINE = "deadline"


class Goal(BaseModel):
    """What a plan optimizes, and which offers count.

    `hours`: how long the job takes, on a GPU of its `gpu_types` if they are one; without it the program is read for
    that. `interruptible` None: as the program is read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    optimize: Objective = Objective.COST
    hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] | None = None
    deadline_hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] | None = None
    allowed_backends: Annotated[tuple[_Name, ...], Field(max_length=64)] = ()
    dedicated: bool = False
    interruptible: bool | None = None
    every_region: bool = False
    """Each region's offer; otherwise the best of each machine type of a backend."""
    limit: Annotated[int, Field(ge=1, le=MOST_OFFERS)] = 50

    @property
    def deadline_seconds(self) -> float | None:
        return None if self.deadline_hours is None else self.deadline_hours * 3600


class PlanRequest(JobSpec, Goal):
    """A job, its program and the goal of the plan, side by side as they are sent.

    The program is `code`, or `files` by their paths with the one that is started as `entry`: as far as it is written.
    `backend` and `fallback` are an explicit choice.
    """

    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)] = ("python", MAIN)
    code: Annotated[str, Field(max_length=MAX_FILE)] | None = None
    files: Annotated[dict[_Path, str], Field(max_length=MAX_FILES)] = Field(default_factory=dict)
    entry: _Path | None = None

    @model_validator(mode="after")
    def _one_program(self) -> PlanRequest:
        if self.code is not None and self.files:
            raise ValueError("a program is given as code or as files, not both")
        if self.entry is not None and self.files and self.entry not in self.files:
            raise ValueError(f"the entry {self.entry!r} is not among the files")
        return self

    @property
    def named_backends(self) -> tuple[str, ...]:
        """The backends that were named, in their order."""
        return self.backends if self.backend else tuple(dict.fromkeys(self.fallback))

    @property
    def planned_market(self) -> Market | None:
        """Return the market to look in, None for any that suits the job.

        Without a word on it, a job at named backends gets machines that cannot be taken back, as when it is submitted.
        """
        if self.market is None and self.named_backends and not self.interruptible:
            return Market.ON_DEMAND
        return self.market

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
        entry = program.entry if (program := self.program) else ""
        words = self.command[: self.command.index(entry)] if entry in self.command else ()
        return processes_in(words)

    def _arguments(self, entry: str) -> tuple[str, ...]:
        at = self.command.index(entry) if entry in self.command else len(self.command)
        return self.command[at + 1 :]
