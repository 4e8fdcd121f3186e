"""Training requests: a model and a config, as external programs send them, converted to a JobSpec.

The program is the config's `code` (its text), `script` (an absolute path on the server's computer), `command` with
an optional `bundle`, or else the model plugin that the request names. It finds the config, without the program's text
and its environment, as JSON in $CONFIG and the model's name in $MODEL_PLUGIN; tenant, name and tags are in $TENANT_ID,
$WANDB_NAME and $WANDB_TAGS, of which Weights & Biases reads the last two itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crucible.core.compute.offers import Market
from crucible.core.compute.resources import Resources
from crucible.core.compute.tiers import DEFAULT_TIER
from crucible.core.errors import BadInput
from crucible.core.job.models import ModelOrder
from crucible.core.job.spec import PYTHON, EnvironmentSpec, JobSpec, Retries, Source, SourceKind
from crucible.core.patterns import NAME_PATTERN, SHA256_PATTERN, TEXT_PATTERN, broken_rule
from crucible.core.people.identity import PROJECT_PATTERN

MAIN, CONFIG_FILE = "main.py", "config.json"
CONFIG_ENV, MODEL_ENV = "CONFIG", "MODEL_PLUGIN"
DEEPEST = 50
PROGRAMS = ("code", "script", "command")

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=NAME_PATTERN)]
_Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=TEXT_PATTERN)]
_Project = Annotated[str, Field(pattern=PROJECT_PATTERN)]

M = TypeVar("M", bound=BaseModel)


def _checked(kind: type[M], fields: Mapping[str, Any]) -> M:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        rule = broken_rule(first)
        raise BadInput(
            f"The request cannot be run: {f'{where!r} {rule}' if rule else first['msg']}.",
            fix=f"Change what becomes {where!r}; GET /openapi.json says what is allowed.",
            field=where,
        ) from error


class _Open(BaseModel):
    """A model that validates its own fields; further fields are passed on to the program."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    @model_validator(mode="after")
    def _encodable(self) -> Self:
        if len(levels := list(_levels(self.model_extra))) > DEEPEST:
            raise ValueError(f"lists and tables are nested more than {DEEPEST} deep")
        texts = (item for level in levels for item in level if isinstance(item, str))
        if any("\ud800" <= letter <= "\udfff" for text in texts if not text.isascii() for letter in text):
            raise ValueError("a text contains half a character (a lone surrogate)")
        return self


def _levels(value: object) -> Iterator[list[object]]:
    """Yield the items of nested lists and tables, keys too, level by level up to the limit; without recursion."""
    held: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        held = [item for item in held if isinstance(item, Mapping | list | tuple)]
        if not held:
            return
        held = [part for item in held for part in (*item, *(item.values() if isinstance(item, Mapping) else ()))]
        yield held


class TrainingConfig(_Open):
    code: Annotated[str | None, Field(min_length=1, description="the program's text")] = None
    script: Annotated[_Text | None, Field(description="the program's absolute path on the server's computer")] = None
    command: Annotated[tuple[str, ...] | None, Field(min_length=1, max_length=10_000)] = None
    bundle: Annotated[str | None, Field(pattern=SHA256_PATTERN, description="SHA-256 of code uploaded before")] = None
    args: Annotated[tuple[str | int | float, ...], Field(max_length=1000)] = ()
    executor: Annotated[_Text | None, Field(description="a backend, such as `local`")] = None
    tier: Annotated[_Text | None, Field(description=f"default: {DEFAULT_TIER}, or none with resources")] = None
    resources: Resources | None = None
    requirements: Annotated[tuple[_Text, ...], Field(max_length=2000)] = ()
    environment: Annotated[EnvironmentSpec | None, Field(description="the Python environment, as in a job")] = None
    allow_spot_instances: bool = False
    max_retries: Annotated[int | None, Field(ge=0, le=1000)] = None
    resume_from: Annotated[_Text | None, Field(description="the id of a checkpoint of any job")] = None
    seed: Annotated[int | None, Field(ge=0, lt=2**32)] = None
    epochs: Annotated[int | None, Field(ge=1, le=10**9)] = None

    @property
    def brings_program(self) -> bool:
        return any(getattr(self, name) is not None for name in PROGRAMS)


class TrainingRequest(BaseModel):
    """A training job: the model's name, and its config."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), hide_input_in_errors=True)

    model_name: Name
    config: TrainingConfig = TrainingConfig()
    name: Name | None = None
    tags: Annotated[tuple[Name, ...], Field(max_length=50)] = ()
    tenant_id: Annotated[_Project | None, Field(description="the project of the job")] = None


class TrainingParams(TrainingConfig):
    batch_size: Annotated[int | None, Field(ge=1)] = None
    learning_rate: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    model_type: Name | None = None


class ModelParams(_Open):
    architecture: Name | None = None
    input_size: Annotated[int | None, Field(ge=1)] = None


class Orchestration(BaseModel):
    """A training request in the format of tenants."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), hide_input_in_errors=True)

    tenant_id: _Project
    training_params: TrainingParams = TrainingParams()
    model_params: ModelParams = ModelParams()
    custom_name: Name | None = None
    wandb_tags: Annotated[tuple[Name, ...], Field(max_length=50)] = ()

    def request(self) -> TrainingRequest:
        """Convert to a TrainingRequest; the model is the architecture, else the type. Raises BadInput without both."""
        model = self.model_params.architecture or self.training_params.model_type
        if model is None:
            fix = "Give model_params.architecture, as in {'architecture': 'yolo'}."
            raise BadInput("The request names no model.", fix=fix, field="model_params.architecture")
        return TrainingRequest(
            model_name=model,
            config=_checked(TrainingConfig, self._config(model)),
            name=self.custom_name,
            tags=self.wandb_tags,
            tenant_id=self.tenant_id,
        )

    def _config(self, model: str) -> dict[str, Any]:
        """Return the config: a program gets the model's parameters as `model_params`, a plugin as further options."""
        fields = self.training_params.model_dump(exclude_unset=True)
        params = self.model_params.model_dump(exclude_unset=True)
        if self.training_params.brings_program:
            return {**fields, "model_params": params}
        options = {name: value for name, value in params.items() if name != "architecture"}
        if twice := sorted(fields.keys() & options.keys()):
            raise BadInput(f"{twice[0]} is given twice.", fix="Keep it in one of training_params and model_params.")
        named = {"model_type"} if self.model_params.architecture is None else set()
        return {name: value for name, value in {**fields, **options}.items() if name not in named}


@dataclass(frozen=True)
class PreparedJob:
    """A job to submit. `files` become the bundle that the spec still lacks; empty if it needs none."""

    spec: JobSpec
    files: Mapping[str, bytes] = field(default_factory=dict)
    project: str | None = None


def prepare_job(request: TrainingRequest) -> PreparedJob:
    """Return the job of a request that contains its program. Raises BadInput for contradictory fields."""
    config = request.config
    files = (
        {MAIN: config.code.encode(errors="replace"), CONFIG_FILE: _config_json(config).encode()} if config.code else {}
    )
    return PreparedJob(_checked(JobSpec, {**_program(request), **job_fields(request)}), files, request.tenant_id)


def model_order(request: TrainingRequest) -> ModelOrder | None:
    """Return the order for the model plugin; None for a request that contains its own program."""
    config = request.config
    if config.brings_program:
        return None
    ours = TrainingConfig.model_fields.keys() - {"epochs"}
    return ModelOrder(request.model_name, "train", config.model_dump(mode="json", exclude_unset=True, exclude=ours))


def no_model_plugin(request: TrainingRequest, why: str) -> BadInput:
    """Return the error for a request whose model plugin the server does not have."""
    return BadInput(
        f"There is no model plugin {request.model_name!r}.",
        why=why,
        fix="Send the program itself, as `code` (its text) or `script` (its path on the server) of the config or the "
        "training_params; or let the server offer the model, with its setting models_python.",
        name=request.model_name,
    )


def _config_json(config: TrainingConfig) -> str:
    """Return the config that the program gets, as JSON."""
    return json.dumps(config.model_dump(mode="json", exclude_unset=True, exclude={"code", "environment"}))


def _program(request: TrainingRequest) -> dict[str, Any]:
    config = request.config
    programs = [name for name in PROGRAMS if getattr(config, name) is not None]
    if len(programs) > 1:
        raise BadInput(
            f"The config has {' and '.join(programs)}.", fix="Keep one of them.", field=f"config.{programs[1]}"
        )
    args = tuple(map(str, config.args))
    if config.code is not None:
        return {"command": (PYTHON, MAIN, *args), "source": Source(kind=SourceKind.CODE)}
    if config.script is not None:
        return _script(PurePosixPath(config.script), args)
    if config.command is None:
        raise no_model_plugin(request, "The config contains no program.")
    return {"command": (*config.command, *args), "bundle": config.bundle}


def _script(path: PurePosixPath, args: tuple[str, ...]) -> dict[str, Any]:
    if not path.is_absolute() or not path.name:
        raise BadInput(
            f"{str(path)!r} is not an absolute path.",
            why="A script runs in its own folder on the server's computer.",
            fix="Give its absolute path, or send its text as config.code.",
            field="config.script",
        )
    source = Source(kind=SourceKind.SCRIPT, path=str(path))
    return {"command": (PYTHON, path.name, *args), "in_place": str(path.parent), "source": source}


def job_fields(request: TrainingRequest) -> dict[str, Any]:
    """Return the fields of the job besides its program."""
    config = request.config
    sized = config.tier is not None or config.resources is not None
    retries = Retries() if config.max_retries is None else Retries(interruption=config.max_retries)
    return {
        "name": request.name or request.model_name,
        "tags": request.tags,
        "backend": config.executor,
        "tier": config.tier if sized else DEFAULT_TIER,
        "resources": config.resources or Resources(),
        "environment": _environment(config),
        "market": Market.SPOT if config.allow_spot_instances else None,
        "spot_fallback": config.allow_spot_instances,
        "retries": retries,
        "resume_from": config.resume_from,
        "seed": config.seed,
        "env": _variables(request),
    }


def _variables(request: TrainingRequest) -> dict[str, str]:
    variables = {"TENANT_ID": request.tenant_id, "WANDB_NAME": request.name, "WANDB_TAGS": ",".join(request.tags)}
    known = {name: value for name, value in variables.items() if value}
    return {CONFIG_ENV: _config_json(request.config), MODEL_ENV: request.model_name, **known}


def _environment(config: TrainingConfig) -> EnvironmentSpec:
    if not config.requirements:
        return config.environment or EnvironmentSpec()
    if config.environment is not None:
        raise BadInput("The config has requirements and an environment.", fix="Keep one of them.", field="config")
    return EnvironmentSpec(requirements=config.requirements, origin="the request")


def read_config(spec: JobSpec) -> tuple[str | None, dict[str, Any]]:
    """Return the model and config of a training request's job; for other jobs the name and an empty config."""
    try:
        config = json.loads(spec.env.get(CONFIG_ENV, ""))
    except ValueError:
        config = None
    return spec.env.get(MODEL_ENV) or spec.name, config if isinstance(config, dict) else {}
