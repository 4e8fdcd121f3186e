"""Describe the model plugins of this Python as JSON, in one process per plugin.

    python -m crucible.inside.describe                 lists the entry points, importing none
    python -m crucible.inside.describe --model NAME    imports that one and describes it

The response is one JSON object on standard output. A plugin's own output goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from dataclasses import asdict
from typing import Optional

from crucible.inside import registry
from crucible.inside.model import BadPlugin, describe_model

VERSION = 1
MAX_TRACEBACK = 16_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m crucible.inside.describe")
    parser.add_argument("--model")
    args = parser.parse_args()
    # Standard output is kept for the response: whatever a plugin prints there goes to standard error.
    response = os.dup(1)
    os.dup2(2, 1)
    doc = list_models() if args.model is None else describe(args.model)
    with os.fdopen(response, "wb") as out:
        out.write(json.dumps({"v": VERSION, **doc}).encode())
    return 0  # the caller has the response, and kills the threads and processes that the plugin left running


def list_models() -> dict[str, object]:
    """Return the entry points of all models, without importing them."""
    return {"entries": [asdict(found) for found in registry.models()]}


def describe(name: str) -> dict[str, object]:
    """Return `{"model": ...}`, or `{"error": {"text", "traceback"}}`."""
    try:
        model = registry.get_model(name)
        doc: dict[str, object] = {"model": {**describe_model(name, model), "package": _package(name)}}
        json.dumps(doc, allow_nan=False)
        return doc
    except (BadPlugin, registry.UnknownModel) as error:
        return {"error": {"text": str(error), "traceback": None}}
    except BaseException as error:  # noqa: BLE001  a plugin may raise anything, also SystemExit
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        return {"error": {"text": text[-2000:], "traceback": traceback.format_exc()[-MAX_TRACEBACK:]}}


def _package(name: str) -> Optional[str]:
    """Return the folder or file of the plugin's top-level package; None if it is not one path."""
    top = registry.find(name).value.partition(":")[0].partition(".")[0]
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    return os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file


if __name__ == "__main__":
    sys.exit(main())
