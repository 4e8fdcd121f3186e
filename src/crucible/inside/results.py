"""`result`: what a job found out, as one small JSON value that becomes part of the job."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Optional

from crucible.inside.paths import on_platform
from crucible.wire.documents.results import BadResult, Result, encode_result


def result(value: object, kind: Optional[str] = None) -> None:
    """Makes `value` the result of this job; a later call takes its place.

    Numbers, texts, true and false, None, and lists and dicts of them; arrays and tensors become lists. At
    most 64 KiB; larger things belong into `output_dir()`. `kind` is the job's own unless given: train,
    inference, benchmark, or `value`. Raises TypeError or ValueError that names what does not fit. Of several
    ranks the first one's counts. Off-platform it prints `result {...}`.
    """
    try:
        plain = _plain(value)
    except RecursionError as error:
        raise BadResult("the result holds itself, or is nested too deep") from error
    data = encode_result(Result(kind or os.environ.get("CRUCIBLE_KIND") or "value", plain))
    path = os.environ.get("CRUCIBLE_RESULT_FILE")
    if path and on_platform():
        _write(Path(path), data)
    else:
        sys.stdout.write(f"result {json.dumps(plain)}\n")
        sys.stdout.flush()


def _plain(value: object) -> object:
    """What numeric libraries return as what JSON knows."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    as_list = getattr(value, "tolist", None)
    return as_list() if callable(as_list) else value


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and on disk when this returns."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
