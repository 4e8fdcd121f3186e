"""Jobs of model plugins, and the errors about models, for the client and the server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.spec import PYTHON, Kind

RUNNER = "crucible.inside.plugin"
KINDS = {"train": Kind.TRAIN, "infer": Kind.INFERENCE, "benchmark": Kind.BENCHMARK}
MOST_BYTES = 64 * 1024
"""Maximum size of a config or of inputs: they are passed in the job's command."""
_GIB = 1024**3


@dataclass(frozen=True)
class ModelOrder:
    """A model, the method to call (`train`, `infer` or `benchmark`) and its arguments."""

    model: str
    method: str
    config: dict[str, Any]
    inputs: Any = None
    callbacks: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return KINDS[self.method]

    @property
    def command(self) -> tuple[str, ...]:
        words = [PYTHON, "-m", RUNNER, "--model", self.model, "--method", self.method]
        words += ["--config", encode_json(self.config, "The config")]
        words += [] if self.inputs is None else ["--inputs", encode_json(self.inputs, "The input")]
        return (*words, *(word for name in self.callbacks for word in ("--callback", name)))


def encode_json(value: object, what: str) -> str:
    """Return the value as JSON; raises BadInput if JSON cannot represent it or it is too large."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        fix = "Use numbers, texts, true, false, lists and tables; write a date as a text."
        raise BadInput(f"{what} contains a value that JSON does not support.", why=f"{error}.", fix=fix) from error
    if len(text) > MOST_BYTES:
        raise BadInput(f"{what} is larger than {MOST_BYTES // 1024} KiB.", fix="Pass large things as data (--data).")
    return text


def gpu_needs(min_gpu_memory_gb: float) -> dict[str, int]:
    """Return the resources of a model that declares its GPU memory; empty if it declares none."""
    return {"gpus": 1, "gpu_memory_bytes": int(min_gpu_memory_gb * _GIB)} if min_gpu_memory_gb else {}


def cannot_list_models(python: str, why: str, output: str) -> BadInput:
    fix = "Choose another Python. A crucible-ml that is installed there has to be as new as this one."
    why = "\n".join(filter(None, (f"It gave no response: {why}.", output)))
    return BadInput(f"The models of {python} cannot be listed.", why=why, fix=fix)


def unknown_model(name: str, known: Iterable[str], fix: str) -> UnknownName:
    return UnknownName("model", name, known, fix=fix)


def broken_model(name: str, text: str, traceback: str | None, package: str, python: str) -> BadInput:
    return BadInput(
        f"The model {name!r} cannot be used: {text.rstrip('.')}.",
        why=traceback or "",
        fix=f"Repair {package} in {python}, or uninstall it.",
        model=name,
    )


def no_method(name: str, method: str, methods: Sequence[str]) -> BadInput:
    return BadInput(
        f"The model {name!r} has no {method}().",
        why=f"It has {', '.join(f'{known}()' for known in methods)}.",
        fix="Use another method, or add this one to the model.",
    )


def wrong_config(model: str, problems: Sequence[str]) -> BadInput:
    first, *others = (problem if problem.endswith("?") else f"{problem}." for problem in problems)
    return BadInput(
        f"The config of {model!r} is wrong: {first}",
        why="\n".join(f"Also: {problem}" for problem in others),
        fix=f"`crucible models show {model}` lists its options.",
        problems=list(problems),
    )
