"""The model of job files, from which their published schema is made."""

from __future__ import annotations

import datetime
import shlex
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from crucible.core.job.spec import MAX_PRIORITY, Kind

PAYLOADS = ("script", "directory", "git", "notebook", "code", "shell", "model")
NOT_FOR_MODELS = ("args", "entry", "ref", "include", "in_place")
WHAT_TO_RUN = frozenset({*PAYLOADS, *NOT_FOR_MODELS, "python"})
"""Fields that say what to run and how to package it; the others are fields of the job."""


class JobModel(BaseModel):
    """A model plugin by name; the job's kind decides whether it trains, predicts or is benchmarked."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Model", defer_build=True)

    name: str = Field(min_length=1, description="The model; see `crucible models`.")
    config: str | dict[str, Any] = Field(
        default_factory=dict, description="Its options, or a file that holds them.", examples=[{"epochs": 3}]
    )
    plugin: str | None = Field(default=None, description="A project folder or a requirement to install it from.")
    input: Any = Field(default=None, description="The inputs of an inference.")
    callbacks: tuple[str, ...] = Field(default=(), description="Your own callbacks, as module:class.")


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class JobFile(BaseModel):
    """One job. Exactly one of script, directory, git, notebook, code, shell and model says what to run.

    Paths are relative to the file. Options of `crucible run` override values of the file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", title="Crucible job file", defer_build=True)

    script: str | None = Field(default=None, description="A Python script.")
    directory: str | None = Field(default=None, description="A folder; see `entry`.")
    git: str | None = Field(default=None, description="A git URL: https, ssh or file, optionally with @ref.")
    notebook: str | None = Field(default=None, description="An .ipynb file.")
    code: str | None = Field(default=None, description="Python code as text.")
    shell: str | None = Field(default=None, description="A command for /bin/sh.")
    model: Annotated[JobModel | None, BeforeValidator(_named, json_schema_input_type=str | JobModel | None)] = Field(
        default=None, description="A model plugin: its name, or a table with its config."
    )
    args: tuple[str | bool | int | float, ...] = Field(default=(), description="Arguments for the script.")
    entry: str | None = Field(default=None, description="The file of a directory or repository to run.")
    ref: str | None = Field(default=None, description="Branch, tag or commit of the git URL.")
    include: tuple[str, ...] = Field(default=(), description="Patterns of more files to send.")
    in_place: bool = Field(default=False, description="Run in the folder itself instead of a copy.")
    python: str | None = Field(default=None, description="Interpreter or virtual environment of the job.")
    name: str | None = Field(default=None, description="Name of the job.")
    project: str | None = Field(default=None, description="Project to run the job in (default: your only project).")
    kind: Kind | None = Field(default=None, description="A label with defaults.")
    backend: str | None = Field(
        default=None, description="Backend; further ones, after commas, are its fallback.", examples=["rehearsal,local"]
    )
    fallback: str | tuple[str, ...] = Field(
        default=(), description="Fallback backends, in order, for when one has no machine or reclaimed it."
    )
    market: str | None = Field(default=None, description="spot, on_demand or reserved.", examples=["spot"])
    spot_fallback: bool = Field(
        default=False, description="Spot, but on demand where no spot machine is available (default: wait for one)."
    )
    regions: str | tuple[str, ...] = Field(default=(), description="Only these regions.")
    tier: str | None = Field(default=None, description="A named size; see `crucible tiers`.")
    cpus: float | None = Field(default=None, description="Number of CPUs; fractions are allowed.")
    memory: str | int | None = Field(default=None, description="Memory limit; 4G is 4 GiB.", examples=["4G"])
    gpus: int | None = Field(default=None, description="Number of GPUs.")
    gpu: str | tuple[str, ...] = Field(default=(), description="Only GPUs of these types, such as T4 or A100.")
    gpu_memory: str | int | None = Field(default=None, description="Memory of each GPU.", examples=["16G"])
    time: str | int | float | None = Field(default=None, description="Time limit.", examples=["1h30m"])
    max_cost_usd: float | None = Field(
        default=None, description="Maximum cost of an attempt; on machines that bill, it is stopped when that is spent."
    )
    env_files: tuple[str, ...] = Field(default=(), description="Files of NAME=VALUE lines.")
    env: dict[str, str | bool | int | float | None] = Field(
        default_factory=dict, description="Variables; null takes the submitting shell's value."
    )
    secrets: tuple[str, ...] | dict[str, str] = Field(
        default=(), description="Secrets of the project: names, or a table of variables and names."
    )
    data: tuple[str, ...] | dict[str, str] = Field(
        default=(), description="Paths or URIs that appear under $CRUCIBLE_DATA_DIR."
    )
    priority: Annotated[int, Field(strict=True, ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = Field(
        default=None, description="Its order among your own waiting jobs: higher goes first (default: 0)."
    )
    retries: Annotated[int, Field(ge=0)] | dict[str, int] | None = Field(
        default=None, description="Retries after a failure of the code, or a table with a number per cause."
    )
    retry_wait: str | int | float | None = Field(
        default=None, description="Time before a retry (default: 60s).", examples=["30s"]
    )
    keep: Annotated[int, Field(ge=1)] | dict[str, int | bool] | None = Field(
        default=None, description="Number of newest checkpoints to keep, or a table of latest, best, every."
    )
    outputs: str | tuple[str, ...] = Field(
        default=(),
        description="Keep only files of the working directory that match, such as *.pt or runs/ (default: all).",
    )
    no_outputs: bool = Field(default=False, description="Keep no files of the working directory.")
    seed: int | None = Field(default=None, description="Value of $CRUCIBLE_SEED.")
    resume_from: str | None = Field(default=None, description="ID of a checkpoint, of any job, to start from.")
    max_wait: str | int | float | None = Field(
        default=None,
        description="Maximum time in a provider's queue; then the job tries its other backends (default: no limit).",
        examples=["2h"],
    )
    grace: str | int | float | None = Field(default=None, description="Time between TERM and KILL.")
    tags: tuple[str, ...] = Field(default=(), description="Labels to find the job by.")

    @field_validator("args", mode="before")
    @classmethod
    def _arguments(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(f"this is a text, but a list is needed: {_format_list(value)}")
        for number, item in enumerate(value if isinstance(value, list | tuple) else (), 1):
            if (kind := _not_text(item)) is not None:
                raise ValueError(f"item {number} is {kind}")
        return value

    @field_validator("env", mode="before")
    @classmethod
    def _variables(cls, value: object) -> object:
        for name, item in value.items() if isinstance(value, dict) else ():
            if item is not None and (kind := _not_text(item)) is not None:
                raise ValueError(f"{name} is {kind}")
        return value

    @field_validator("retries")
    @classmethod
    def _causes(cls, value: int | dict[str, int] | None) -> int | dict[str, int] | None:
        known = ("interruption", "infrastructure", "user")
        if isinstance(value, dict) and not set(value) <= set(known):
            raise ValueError(f"the causes are {', '.join(known)}")
        return value

    @field_validator("keep")
    @classmethod
    def _kept(cls, value: int | dict[str, int | bool] | None) -> int | dict[str, int | bool] | None:
        known = ("latest", "best", "every", "higher_is_better")
        if isinstance(value, dict) and not set(value) <= set(known):
            raise ValueError(f"its fields are {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _one_payload(self) -> JobFile:
        present = [name for name in PAYLOADS if getattr(self, name) is not None]
        if len(present) != 1:
            found = f"this job has {' and '.join(present)}" if present else "this job has none"
            raise ValueError(f"exactly one of {', '.join(PAYLOADS)} is required; {found}")
        conflicts = [name for name in NOT_FOR_MODELS if self.model and getattr(self, name)]
        if conflicts:
            raise ValueError(f"{conflicts[0]} does not go with a model; give its options in its config")
        return self


def format_argument(value: str | bool | int | float) -> str:
    """Return an argument or a variable in the form that the program gets; booleans are `true` or `false`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _not_text(value: object) -> str | None:
    """Return why a value cannot be passed to a program as one word, and how to write it instead; None if it can."""
    if value is None:
        return 'empty (null); write "" for an empty text, or leave it out'
    if isinstance(value, datetime.date | datetime.time):
        return f'a date or time; put it in quotes, as in "{value}"'
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'table'}; a text or a number is needed"
    return None


def _format_list(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return f"[{', '.join(chr(34) + word.replace(chr(34), chr(92) + chr(34)) + chr(34) for word in words)}]"
