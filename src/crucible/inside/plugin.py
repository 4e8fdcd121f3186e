"""Run a model plugin as a job, the same way on every backend:

python -m crucible.inside.plugin --job-id ID --model NAME --config JSON [--method train] [--inputs JSON]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from crucible.inside import registry
from crucible.inside.callbacks import StopTraining, make_callbacks
from crucible.inside.model import METHODS, BadPlugin, BaseModel, implements
from crucible.inside.paths import data_dir, resume_from
from crucible.inside.results import result
from crucible.inside.stopping import on_stop
from crucible.wire.documents.results import BadResult
from crucible.wire.models.options import BadConfig, check_config

BAD_INPUT = 2
_KINDS = {"train": "train", "infer": "inference", "benchmark": "benchmark"}


class BadRequest(Exception):
    """The request cannot be carried out; the message says why."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the request and return the exit code: 2 for an invalid request. Exceptions of the model are not caught."""
    args = _parser().parse_args(arguments)
    if args.job_id:
        os.environ.setdefault("CRUCIBLE_JOB_ID", args.job_id)
    try:
        model = make_model(args.model, _json("--config", args.config), args.method)
        more = [_callback(name) for name in args.callback]
        inputs = _json("--inputs", args.inputs)
    except (BadRequest, BadPlugin, registry.UnknownModel) as error:
        print(f"Error: {error}", file=sys.stderr)
        return BAD_INPUT
    _resume(model)
    if args.method == "train":
        return _train(model, more)
    value = model.infer(inputs) if args.method == "infer" else model.benchmark()
    return _write_result(value, _KINDS[args.method])


def make_model(name: str, config: object, method: str = "train") -> BaseModel:
    """Return the model of this name with a checked config. Raises UnknownModel, BadPlugin, BadRequest."""
    plugin = registry.get_model(name)
    if not implements(plugin, method):
        able = ", ".join(known for known in METHODS if implements(plugin, known))
        raise BadRequest(f"The model {name!r} has no {method}(); it has {able}.")
    try:
        checked = check_config(plugin.schema, config)
    except BadConfig as error:
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        raise BadRequest(f"The config of {name!r} is wrong:{problems}") from error
    model = plugin(checked)
    if not hasattr(model, "config"):
        model.config = checked  # its own __init__ did not call BaseModel's
    return model


def dataset() -> Optional[Path]:
    """Return the path of the job's only input, the folder of several, or None."""
    folder = data_dir()
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    if not found:
        return None
    return found[0] if len(found) == 1 else folder


def _train(model: BaseModel, more: Sequence[Any]) -> int:
    on_stop()
    train_loader, val_loader = model.prepare_dataloaders(dataset(), model.config)
    try:
        value = model.train(train_loader, val_loader, make_callbacks(model, more))
    except StopTraining as stopped:
        print(f"Training {stopped}.", file=sys.stderr)
        return 0
    if value is None:
        return 0
    try:
        result(value, kind="train")
    except BadResult as error:
        # A bad return value must not fail a finished training.
        print(f"The return value of train() is not kept as the result: {error}.", file=sys.stderr)
    return 0


def _write_result(value: object, kind: str) -> int:
    try:
        result(value, kind=kind)
    except BadResult as error:
        print(f"Error: {error}.", file=sys.stderr)
        return 1
    return 0


def _resume(model: BaseModel) -> None:
    path = resume_from()
    if path is not None:
        model.resume_from = path
        model.resume(path)


def _callback(name: str) -> Any:
    """Return the user's callback `module:attribute`, instantiated if it is a class."""
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise BadRequest(f"--callback {name}: write it as module:Class.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadRequest(f"--callback {name}: {error}.") from error
    return found() if isinstance(found, type) else found


def _json(flag: str, text: Optional[str]) -> Any:
    if text is None:
        return {} if flag == "--config" else None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{flag} is not valid JSON: {error}.") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m crucible.inside.plugin", description="Run a model plugin.")
    parser.add_argument("--job-id", help="the job's id (default: $CRUCIBLE_JOB_ID)")
    parser.add_argument("--model", required=True)
    parser.add_argument("--config", metavar="JSON")
    parser.add_argument("--method", choices=METHODS, default="train")
    parser.add_argument("--inputs", metavar="JSON")
    parser.add_argument("--callback", metavar="MODULE:CLASS", action="append", default=[])
    return parser


if __name__ == "__main__":
    sys.exit(main())
