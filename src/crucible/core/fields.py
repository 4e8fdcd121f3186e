"""Suggestions for unknown fields of pydantic models, at any depth."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import get_args

from pydantic import BaseModel

EXTRA = "extra_forbidden"
"""Pydantic's error type for an unknown field."""


def suggest_field(kind: object, path: Sequence[object]) -> str:
    """Suggest a field for the unknown last part of `path` in a model, or list those that it has; may be empty."""
    known = sorted({name for model in _models(kind, path[:-1]) for name in _names(model)})
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There are {', '.join(known)}." if known else ""


def _models(kind: object, path: Sequence[object]) -> Iterator[type[BaseModel]]:
    """Yield the models that may stand at `path`; parts that are no field are list indexes or choose a union's type."""
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        for part in get_args(kind):
            yield from _models(part, path)
        return
    inner = next((index for index, part in enumerate(path) if part in kind.model_fields), None)
    if inner is None:
        yield kind
    else:
        yield from _models(kind.model_fields[str(path[inner])].annotation, path[inner + 1 :])


def _names(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
