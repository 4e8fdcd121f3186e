"""Models by their names: what is asked of one, and what is said when it cannot be done. The same on every face."""

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
"""A config, or inputs, travel in the job's command."""
_GIB = 1024**3


@dataclass(frozen=True)
class ModelOrder:
    """Which model, what it is to do (`train`, `infer` or `benchmark`) and with what."""

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
        words += [] if self.inputs is None else ["--inputs", encode_json(self.inputs, "What is asked")]
        return (*words, *(word for name in self.callbacks for word in ("--callback", name)))


def encode_json(value: object, what: str) -> str:
    """The value as it travels; raises BadInput for what JSON cannot say, or is too large."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        fix = "Use numbers, texts, true, false, lists and tables; a date is written as a text."
        raise BadInput(f"{what} holds what JSON cannot say.", why=f"{error}.", fix=fix) from error
    if len(text) > MOST_BYTES:
        raise BadInput(f"{what} is larger than {MOST_BYTES // 1024} KiB.", fix="Pass large things as data (--data).")
    return text


def gpu_needs(min_gpu_memory_gb: float) -> dict[str, int]:
    """The resources of a model that says how much GPU memory it needs."""
    return {"gpus": 1, "gpu_memory_bytes": int(min_gpu_memory_gb * _GIB)} if min_gpu_memory_gb else {}


def cannot_list_models(python: str, why: str, words: str) -> BadInput:
    fix = "Name another Python. A crucible-ml that is installed there has to be as new as this one."
    told = "\n".join(filter(None, (f"It said nothing: {why}.", words)))
    return BadInput(f"{python} cannot be asked for its models.", why=told, fix=fix)


def unknown_model(name: str, known: Iterable[str], fix: str) -> UnknownName:
    return UnknownName("model", name, known, fix=fix)


def broken_model(name: str, text: str, traceback: str | None, package: str, python: str) -> BadInput:
    return BadInput(
        f"The model {name!r} cannot be used: {text.rstrip('.')}.",
        why=traceback or "",
        fix=f"Mend {package} in {python}, or remove it.",
        model=name,
    )


def no_method(name: str, method: str, methods: Sequence[str]) -> BadInput:
    return BadInput(
        f"The model {name!r} has no {method}().",
        why=f"It has {', '.join(f'{known}()' for known in methods)}.",
        fix="Ask for another, or add the method to the model.",
    )


def wrong_config(model: str, problems: Sequence[str]) -> BadInput:
    first, *others = (problem if problem.endswith("?") else f"{problem}." for problem in problems)
    return BadInput(
        f"The config of {model!r} is wrong: {first}",
        why="\n".join(f"Also: {problem}" for problem in others),
        fix=f"`crucible models show {model}` lists its options.",
        problems=list(problems),
    )
