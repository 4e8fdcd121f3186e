"""The spec of a job: what the user submitted, frozen at submission.

The same model is the body of the API, the content of a job file and the stored row, so that everything stored has been
checked. Every payload (script, directory, git, notebook, code, shell) has been reduced to a bundle, a command and an
environment here.
"""

from __future__ import annotations

import enum
import posixpath
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from crucible.core.compute.gpus import find_gpus
from crucible.core.compute.offers import Market
from crucible.core.compute.pricing import MICROS
from crucible.core.compute.resources import Resources
from crucible.core.job.tags import MAX_KEY, MAX_TAGS, MAX_VALUE
from crucible.core.patterns import NAME_PATTERN, PLAN_PATTERN, SHA256_PATTERN, TAG_PATTERN, TEXT_PATTERN
from crucible.core.people.identity import PROJECT_PATTERN
from crucible.core.people.project_secrets import MOST_SECRETS, SECRET_PATTERN

DEFAULT_BACKEND = "local"
PYTHON = "{python}"
"""As the first item of a command: the Python of the job's environment."""
MAX_ARGUMENTS_BYTES = 128 * 1024
MAX_ENV = 256
MAX_DIFF = 256 * 1024
MAX_USD = 1e9
MAX_PLAN = 1000
MAX_PRIORITY = 1000
MAX_NODES = 1024
MAX_WAIT = 366 * 86400.0
MAX_OUTPUT_PATTERNS = 100
ALL_OUTPUTS = ("*",)

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = ("CRUCIBLE_", "CUDA_VISIBLE_DEVICES")
_LOADING = frozenset({"PATH", "HOME", "PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "SHELL", "TMPDIR"})
_REQUESTED = "CRUCIBLE_CHECKPOINT_SIGNAL"  # set by users whose program wants a signal to save a checkpoint
JobName = Annotated[str, Field(min_length=1, max_length=100, pattern=NAME_PATTERN)]
_TAG = Annotated[str, Field(min_length=1, max_length=MAX_KEY + MAX_VALUE + 1, pattern=TAG_PATTERN)]
_PROJECT = Annotated[str, Field(pattern=PROJECT_PATTERN)]
_SECRET = Annotated[str, Field(pattern=SECRET_PATTERN)]
_TEXT = Annotated[str, Field(max_length=4096, pattern=TEXT_PATTERN)]


class Kind(enum.StrEnum):
    """A label with defaults; the shape of a job, not its kind, decides its lifecycle."""

    TRAIN = "train"
    INFERENCE = "inference"
    BENCHMARK = "benchmark"
    SERVE = "serve"


class Shape(enum.StrEnum):
    TASK = "task"
    SERVICE = "service"


class SourceKind(enum.StrEnum):
    SCRIPT = "script"
    DIRECTORY = "directory"
    GIT = "git"
    NOTEBOOK = "notebook"
    CODE = "code"
    SHELL = "shell"
    PLUGIN = "plugin"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Source(_Frozen):
    """Where the code came from, to reproduce it. `diff` holds uncommitted changes (cut at 256 KiB)."""

    kind: SourceKind = SourceKind.SHELL
    path: _TEXT | None = None
    url: _TEXT | None = None
    ref: _TEXT | None = None
    commit: _TEXT | None = None
    dirty: bool = False
    diff: Annotated[str, Field(max_length=MAX_DIFF)] | None = None


class EnvironmentSpec(_Frozen):
    """The Python environment of the job; at most one of interpreter, requirements and project is set.

    `origin` describes how it was chosen.
    """

    interpreter: _TEXT | None = None
    requirements: Annotated[tuple[_TEXT, ...], Field(max_length=2000)] = ()
    project: _TEXT | None = None
    python: _TEXT | None = None
    origin: _TEXT = ""

    @model_validator(mode="after")
    def _one_way(self) -> EnvironmentSpec:
        if sum(map(bool, (self.interpreter, self.requirements, self.project))) > 1:
            raise ValueError("set only one of interpreter, requirements and project")
        return self


class DataInput(_Frozen):
    """An input that appears under $CRUCIBLE_DATA_DIR/<name>."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=NAME_PATTERN)]
    source: Annotated[_TEXT, Field(min_length=1)]

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if value in (".", ".."):
            raise ValueError("the name of a data input cannot be `.` or `..`")
        return value

    @property
    def is_path(self) -> bool:
        """Whether the source is a file or folder of the submitting computer."""
        return "://" not in self.source or self.source.startswith("file://")


class Retries(_Frozen):
    """Retry budgets by cause: reclaimed machines, infrastructure failures, failures of the user's code."""

    interruption: Annotated[int, Field(ge=0, le=1000)] = 10
    infrastructure: Annotated[int, Field(ge=0, le=1000)] = 3
    user: Annotated[int, Field(ge=0, le=1000)] = 0
    wait_seconds: Annotated[float, Field(ge=0, le=86400)] = 60.0


class KeepPolicy(_Frozen):
    """Which checkpoints are kept: the newest, the best by their metric, and one every `every` steps."""

    latest: Annotated[int, Field(ge=1, le=1000)] = 3
    best: Annotated[int, Field(ge=0, le=1000)] = 1
    every: Annotated[int, Field(ge=1)] | None = None
    higher_is_better: bool = False


class JobSpec(_Frozen):
    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)]
    name: JobName | None = None
    project: _PROJECT | None = None
    """The project it belongs to (default: the submitter's only one, or the default project)."""
    kind: Kind = Kind.TRAIN
    shape: Shape = Shape.TASK
    bundle: Annotated[str, Field(pattern=SHA256_PATTERN)] | None = None
    in_place: _TEXT | None = None
    environment: EnvironmentSpec = EnvironmentSpec()
    env: Annotated[dict[str, str], Field(max_length=MAX_ENV)] = Field(default_factory=dict)
    secrets: Annotated[dict[str, _SECRET], Field(max_length=MOST_SECRETS, exclude_if=lambda value: not value)] = Field(
        default_factory=dict
    )
    """Environment variables whose values are secrets of the job's project: variable names to secret names."""
    data: Annotated[tuple[DataInput, ...], Field(max_length=256)] = ()
    backend: _TEXT | None = None
    fallback: Annotated[tuple[_TEXT, ...], Field(max_length=16)] = ()
    """Further backends, in order of preference: the first backend with room runs the job."""
    market: Market | None = None
    regions: Annotated[tuple[_TEXT, ...], Field(max_length=64)] = ()
    gpu_types: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
        Field(max_length=64, exclude_if=lambda value: not value),
    ] = ()
    """Only GPUs of these types; a group such as `A100` is stored as all of its types."""
    tier: _TEXT | None = None
    resources: Resources = Resources()
    max_cost_usd: Annotated[float, Field(ge=0, le=MAX_USD)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Maximum cost of an attempt: on machines that bill, it is stopped when that is spent."""
    # Each field added since version 0.1.0, here or in a table such as Resources, has an `exclude_if` that leaves it out
    # at its default: servers of 0.1.0 refuse unknown keys, and Idempotency-Key compares hashes of this JSON.
    priority: Annotated[int, Field(strict=True, ge=-MAX_PRIORITY, le=MAX_PRIORITY, exclude_if=lambda n: not n)] = 0
    """Its order among the waiting jobs of the same user: higher goes first."""
    nodes: Annotated[int, Field(strict=True, ge=1, le=MAX_NODES, exclude_if=lambda n: n == 1)] = 1
    """How many machines it runs on at once, one for each rank."""
    spot_fallback: Annotated[bool, Field(strict=True, exclude_if=lambda value: not value)] = False
    """Run on demand if no spot machine is available. Sets the market to spot if there is none."""
    max_wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """How long its machine may stand in a provider's own queue before the job goes elsewhere (default: no limit)."""
    outputs: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024, pattern=TEXT_PATTERN)], ...],
        Field(max_length=MAX_OUTPUT_PATTERNS, exclude_if=lambda patterns: patterns == ALL_OUTPUTS),
    ] = ALL_OUTPUTS
    """Patterns of the files in its working directory that are kept; none if empty."""
    workdir: _TEXT | None = Field(default=None, exclude_if=lambda value: value is None)
    """The folder of the bundle in which the command starts, relative to its top (default: the top)."""
    retries: Retries = Retries()
    keep: KeepPolicy = KeepPolicy()
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    """Value of $CRUCIBLE_SEED (default: made from the job's id)."""
    resume_from: _TEXT | None = None
    """The id of a checkpoint, of any job, from which the first attempt starts."""
    rerun_of: _TEXT | None = None
    plan: Annotated[str, Field(min_length=1, max_length=MAX_PLAN, pattern=PLAN_PATTERN)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Ignored. Clients of version 0.1.0 send it, and jobs submitted by them have it stored."""
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    tags: Annotated[tuple[_TAG, ...], Field(max_length=MAX_TAGS)] = ()
    """`key` or `key=value`, as submitted; core/job/tags.py parses them."""
    source: Source = Source()

    @property
    def backends(self) -> tuple[str, ...]:
        """All backends that the job may run on, the first choice first."""
        return tuple(dict.fromkeys((self.backend or DEFAULT_BACKEND, *self.fallback)))

    @property
    def words_in_bundle(self) -> tuple[str, ...]:
        """The command with each word as the name that it would have in the bundle if it is a relative path."""
        if self.workdir is None:
            return self.command
        return tuple(posixpath.normpath(posixpath.join(self.workdir, word)) for word in self.command)

    @property
    def max_cost_micros(self) -> int | None:
        return None if self.max_cost_usd is None else round(self.max_cost_usd * MICROS)

    @model_validator(mode="before")
    @classmethod
    def _fallback_means_spot(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("spot_fallback") is True and fields.get("market") is None:
            return {**fields, "market": Market.SPOT}
        return fields

    @field_validator("spot_fallback")
    @classmethod
    def _require_spot(cls, value: bool, info: ValidationInfo) -> bool:
        market = info.data.get("market", Market.SPOT)
        if value and market is not Market.SPOT:
            raise ValueError(f"needs the market spot, not {market.value}")
        return value

    @field_validator("command")
    @classmethod
    def _command(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value[0].strip():
            raise ValueError("the command is empty")
        if sum(len(item.encode()) for item in value) > MAX_ARGUMENTS_BYTES:
            raise ValueError("the command is longer than 128 KiB")
        if any("\x00" in item for item in value):
            raise ValueError("the command contains a NUL character")
        return value

    @field_validator("gpu_types")
    @classmethod
    def _gpu_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.name for name in value for one in find_gpus(name)))

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            _check_variable(name)
            if "\x00" in text or len(text.encode()) > 64 * 1024:
                raise ValueError(f"the value of {name} is longer than 64 KiB or contains a NUL character")
        return value

    @field_validator("secrets")
    @classmethod
    def _secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            _check_variable(name)
            if name in _LOADING:
                raise ValueError(f"{name} affects how programs start; it cannot be a secret")
        return value

    @field_validator("data")
    @classmethod
    def _data(cls, value: tuple[DataInput, ...]) -> tuple[DataInput, ...]:
        if len({item.name for item in value}) != len(value):
            raise ValueError("two data inputs have the same name")
        return value

    @field_validator("workdir")
    @classmethod
    def _workdir(cls, value: str | None) -> str | None:
        if value is not None and ("\\" in value or {"", ".", ".."} & set(value.split("/"))):
            raise ValueError("must be a folder inside the bundle, such as experiments/first")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> JobSpec:
        if self.bundle and self.in_place:
            raise ValueError("a job has either a bundle or in_place, not both")
        if self.workdir and self.in_place:
            raise ValueError("workdir is a folder of the bundle; a job in place has none")
        if self.in_place is not None and not self.in_place.startswith("/"):
            raise ValueError("in_place must be an absolute path")
        if both := sorted(self.env.keys() & self.secrets.keys()):
            raise ValueError(f"{both[0]} is both a variable and a secret; leave one out")
        if self.shape is Shape.SERVICE:
            raise ValueError("services are not supported yet; submit a task")
        return self


def _check_variable(name: str) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is not a valid name of an environment variable")
    if name.startswith(_RESERVED) and name != _REQUESTED:
        raise ValueError(f"{name} is set by Crucible itself")
