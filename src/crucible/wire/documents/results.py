"""A job's result: a small JSON value and the kind of the job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

MAX_BYTES = 64 * 1024
"""Maximum size of the encoded result. Larger results belong in artifacts."""

MAX_DEPTH = 32
MAX_INTEGER = 2**63
KINDS = ("train", "inference", "benchmark", "serve", "value")


@dataclass(frozen=True)
class Result:
    """`value` is plain JSON. That of a benchmark is an object of measurements by name."""

    kind: str
    value: object


class BadResult(ValueError):
    """The value is not a valid result; the text says which part, and why."""


def encode_result(result: Result) -> bytes:
    """Return the result as one line of JSON. Raises BadResult."""
    _check_kind(result)
    _check(result.value, "the result", 0)
    data = json.dumps({"kind": result.kind, "value": result.value}, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise BadResult(
            f"the result has {len(data)} bytes; at most {MAX_BYTES} are allowed. Write larger results to a file"
        )
    return data


def decode_result(raw: bytes) -> Result:
    """Return the result in `raw`, checked again. Raises BadResult."""
    if len(raw) > MAX_BYTES:
        raise BadResult(f"the result has more than {MAX_BYTES} bytes")
    try:
        doc = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadResult("the result is not valid JSON") from error
    return read_result_document(doc)


def read_result_document(doc: object) -> Result:
    """Return the result in a document `{"kind", "value"}`. Raises BadResult."""
    if not isinstance(doc, Mapping) or "value" not in doc or not isinstance(doc.get("kind"), str):
        raise BadResult("the result has no kind or no value")
    result = Result(doc["kind"], doc["value"])
    encode_result(result)
    return result


def _check_kind(result: Result) -> None:
    if result.kind not in KINDS:
        raise BadResult(f"{result.kind!r} is not a kind of result; known: {', '.join(KINDS)}")
    if result.kind == "benchmark" and not isinstance(result.value, dict):
        raise BadResult(
            "the result of a benchmark is an object of measurements by name, such as "
            f'{{"accuracy": 0.9}}, not {_describe_type(result.value)}'
        )


def _check(value: object, where: str, depth: int) -> None:
    """Raise BadResult for the first part that is not plain JSON."""
    if depth > MAX_DEPTH:
        raise BadResult(f"the result is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadResult(f"{where} has the key {key!r:.80}, but keys must be texts")
            _check_text(key, where)
            _check(item, f"{where}[{key!r:.80}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)
    elif isinstance(value, str):
        _check_text(value, where)
    elif value is not None and not isinstance(value, bool):
        _check_number(value, where)


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadResult(f"{where} holds half a character, which is not valid text") from error


def _check_number(value: object, where: str) -> None:
    if not isinstance(value, (int, float)):
        raise BadResult(
            f"{where} is {_describe_type(value)}, but a result consists of numbers, texts, lists and objects"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise BadResult(f"{where} is {value}, which JSON cannot represent")
    if isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise BadResult(f"{where} is a whole number of more than 63 bits")


def _describe_type(value: object) -> str:
    words = {list: "a list", tuple: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return words.get(type(value), f"a {type(value).__name__}")
