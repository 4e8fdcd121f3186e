"""The request for a plan: the fields of a submission, the program's text, and the goal."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crucible.core.compute.offers import Market
from crucible.core.compute.resources import MAX_GPUS, MAX_SECONDS
from crucible.core.job.spec import JobSpec
from crucible.core.patterns import TEXT_PATTERN

MAIN = "main.py"
MAX_FILES = 400
MAX_FILE = 1_000_000
MAX_HOURS = MAX_SECONDS / 3600
MOST_OFFERS = 5000
PROGRAMS = (".py", ".ipynb")
READ = (*PROGRAMS, ".yaml", ".yml", ".json", ".toml", ".cfg")
"""Files of a program that are read: code and configuration."""
MOST = 6_000_000
"""Maximum number of characters of a program that are read."""

_Path = Annotated[str, Field(min_length=1, max_length=1024, pattern=TEXT_PATTERN)]
_Name = Annotated[str, Field(min_length=1, max_length=100, pattern=TEXT_PATTERN)]

_PROCESSES = frozenset({"nproc_per_node", "num_processes", "num_gpus"})


class Program(NamedTuple):
    """Files by path, the one to start, and its arguments."""

    files: Mapping[str, str]
    entry: str
    arguments: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A hash of the files, the entry and the arguments."""
        return _digest(self.entry, *self.arguments, *(part for item in sorted(self.files.items()) for part in item))

    @property
    def script(self) -> str:
        """A hash of the code alone: arguments and settings are read by the analysis, which accounts for them."""
        code = sorted(item for item in self.files.items() if item[0] == self.entry or item[0].endswith(PROGRAMS))
        return _digest(self.entry, *(part for item in code for part in item))


def _digest(*parts: str) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = as_bytes(part)
        sha.update(b"%d:" % len(data) + data)
    return sha.hexdigest()


def processes_in(words: Sequence[str]) -> int | None:
    """Return the number of processes in the options of a launcher (torchrun, accelerate, deepspeed), or None."""
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.lstrip("-").replace("-", "_") in _PROCESSES:
            value = value or next(iter(words[index + 1 :]), "")
            return int(value) if value.isdecimal() and 0 < int(value) <= MAX_GPUS else None
    return None


def as_bytes(text: str) -> bytes:
    """Encode a text as UTF-8; lone surrogates, which JSON allows, are replaced."""
    return text.encode(errors="replace")


class Objective(enum.StrEnum):
    COST = "cost"
    SPEED = "speed"
    BALANCED = "balanced"
    DEADLINE = "deadline"


class Goal(BaseModel):
    """What a plan optimizes, and which offers count.

    `hours`: how long the job takes, on a GPU of its `gpu_types` if it names one type (default: read from the program).
    `interruptible`: None takes the answer from the program.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    optimize: Objective = Objective.COST
    hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] | None = None
    deadline_hours: Annotated[float, Field(gt=0, le=MAX_HOURS)] | None = None
    allowed_backends: Annotated[tuple[_Name, ...], Field(max_length=64)] = ()
    dedicated: bool = False
    interruptible: bool | None = None
    every_region: bool = False
    """List the offer of each region (default: the best region of each instance type and backend)."""
    limit: Annotated[int, Field(ge=1, le=MOST_OFFERS)] = 50

    @property
    def deadline_seconds(self) -> float | None:
        return None if self.deadline_hours is None else self.deadline_hours * 3600


class PlanRequest(JobSpec, Goal):
    """A job, its program and the goal of the plan, in one flat body.

    The program is `code`, or `files` by path with the one to start as `entry`; both are optional.
    `backend` and `fallback` restrict the plan to those backends.
    """

    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)] = ("python", MAIN)
    code: Annotated[str, Field(max_length=MAX_FILE)] | None = None
    files: Annotated[dict[_Path, str], Field(max_length=MAX_FILES)] = Field(default_factory=dict)
    entry: _Path | None = None

    @model_validator(mode="after")
    def _one_program(self) -> PlanRequest:
        if self.code is not None and self.files:
            raise ValueError("give a program as code or as files, not both")
        if self.entry is not None and self.files and self.entry not in self.files:
            raise ValueError(f"the entry {self.entry!r} is not among the files")
        return self

    @property
    def named_backends(self) -> tuple[str, ...]:
        """The backends that the user chose, in order."""
        return self.backends if self.backend else tuple(dict.fromkeys(self.fallback))

    @property
    def may_fall_back(self) -> bool:
        """Whether a job that gets a spot machine may run on demand later: unless spot was asked for without that."""
        return self.spot_fallback or self.planned_market is None

    @property
    def planned_market(self) -> Market | None:
        """The market to search; None: any that suits the job.

        A job with chosen backends but no market gets on-demand machines, as it does when it is submitted.
        """
        if self.market is None and self.named_backends and not self.interruptible:
            return Market.ON_DEMAND
        return self.market

    @property
    def program(self) -> Program | None:
        """The program to read; None if the request has no code."""
        if self.code is not None:
            return Program({MAIN: self.code}, MAIN, self._arguments(MAIN))
        entry = self.entry or next((word for word in self.words_in_bundle if word in self.files), None)
        entry = entry or next((path for path in self.files if path.endswith(PROGRAMS)), None)
        return None if entry is None else Program(self.files, entry, self._arguments(entry))

    @property
    def processes(self) -> int | None:
        """How many processes a launcher starts on a machine, as in `torchrun --nproc-per-node 4`; None: not stated."""
        entry = program.entry if (program := self.program) else ""
        words = self.words_in_bundle
        return processes_in(self.command[: words.index(entry)] if entry in words else ())

    def _arguments(self, entry: str) -> tuple[str, ...]:
        words = self.words_in_bundle
        at = words.index(entry) if entry in words else len(words)
        return self.command[at + 1 :]
