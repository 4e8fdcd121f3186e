"""Check responses against the OpenAPI document strictly: no field is missing, and none is undocumented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fastapi import FastAPI
from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from crucible.server.api import ROUTERS, describe

JSON = "application/json"
OPEN_ENDED = frozenset({"Problem"})
"""Schemas that allow additional fields: each error has its own."""


@lru_cache
def document() -> Any:
    api = FastAPI(title="Crucible")
    api.router.routes.extend(route for router in ROUTERS for route in router.routes)
    told = describe(api)
    schemas = told["components"]["schemas"]
    for name, schema in schemas.items():
        if name not in OPEN_ENDED and "properties" in schema:
            schema["additionalProperties"] = False
    return told


@lru_cache
def _validator(label: str, status: int) -> Draft202012Validator | None:
    method, path = label.split()
    operation = document()["paths"].get(path, {}).get(method.lower(), {"responses": {}})
    found = operation["responses"].get(str(status), {}).get("content", {}).get(JSON)
    if found is None:
        return None
    return Draft202012Validator({**found["schema"], "components": document()["components"]})


def wrong_with_answer(label: str, status: int, content: bytes) -> Iterator[str]:
    """Yield the differences between a successful response and its documentation."""
    validator = _validator(label, status)
    if validator is None:
        return
    for error in validator.iter_errors(json.loads(content)):
        for one in _reasons(error):
            where = "/".join(str(part) for part in one.instance_path)
            yield f"{label} answers {status} otherwise than documented: {where}: {one.message[:300]}"


def _reasons(error: ValidationError) -> list[ValidationError]:
    """Return why a value matches none of several alternatives."""
    forms = isinstance(error.kind, ValidationErrorKind.AnyOf | ValidationErrorKind.OneOfNotValid)
    return [one for form in error.kind.context for one in form] or [error] if forms else [error]
