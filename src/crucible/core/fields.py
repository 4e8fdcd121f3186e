"""Which fields a model has, at any depth: what to say of one that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import get_args

from pydantic import BaseModel

EXTRA = "extra_forbidden"
"""What pydantic calls a field that there is not."""


def suggest_field(kind: object, path: Sequence[object]) -> str:
    """What may have been meant by the last part of `path` in a model, or all there is; empty if nobody knows."""
    known = sorted({name for model in _models(kind, path[:-1]) for name in _names(model)})
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There are {', '.join(known)}." if known else ""


def _models(kind: object, path: Sequence[object]) -> Iterator[type[BaseModel]]:
    """Those that may stand at `path`; parts of it that are no field count items, or choose among types."""
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        for part in get_args(kind):
            yield from _models(part, path)
        return
    inner = next((at for at, part in enumerate(path) if part in kind.model_fields), None)
    if inner is None:
        yield kind
    else:
        yield from _models(kind.model_fields[str(path[inner])].annotation, path[inner + 1 :])


def _names(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
