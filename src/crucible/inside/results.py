"""`result`: set the result of a job, a small JSON value."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Optional

from crucible.inside.paths import on_platform
from crucible.wire.documents.results import BadResult, Result, encode_result


def result(value: object, kind: Optional[str] = None) -> None:
    """Set `value` as the result of this job; a later call replaces it.

    Allowed are numbers, texts, true and false, None, and lists and dicts of them; arrays and tensors become lists.
    The limit is 64 KiB; write larger results to `output_dir()`. `kind` is train, inference, benchmark or value
    (default: the job's own kind). Raises TypeError or ValueError that names the invalid part. Of several ranks the
    first one's result counts. Off-platform it prints `result {...}`.
    """
    try:
        plain = _plain(value)
    except RecursionError as error:
        raise BadResult("the result contains itself, or is nested too deep") from error
    data = encode_result(Result(kind or os.environ.get("CRUCIBLE_KIND") or "value", plain))
    path = os.environ.get("CRUCIBLE_RESULT_FILE")
    if path and on_platform():
        _write(Path(path), data)
    else:
        sys.stdout.write(f"result {json.dumps(plain)}\n")
        sys.stdout.flush()


def _plain(value: object) -> object:
    """Convert arrays and tensors of numeric libraries to lists and numbers."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    as_list = getattr(value, "tolist", None)
    return as_list() if callable(as_list) else value


def _write(path: Path, data: bytes) -> None:
    """Write a file completely or not at all; it is on disk when this returns."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
