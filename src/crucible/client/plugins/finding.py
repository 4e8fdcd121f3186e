"""Which models a Python offers. One that fails, hangs or makes no sense is named with its fault; the others are
listed all the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from crucible.client.plugins.asking import Asker, NoAnswer
from crucible.client.plugins.values import Fault, Plugin
from crucible.core.errors import BadInput, UnknownName
from crucible.wire.options import BadSchema, schema_of
from crucible.wire.shim import write_shim

LIST_SECONDS = 20.0
DESCRIBE_SECONDS = 60.0
"""A plugin may import a large framework."""
AT_ONCE = 4


def discover(python: str, environ: Mapping[str, str], *, seconds: float = DESCRIBE_SECONDS) -> tuple[Plugin, ...]:
    """All models of this Python, by name. Raises BadInput when the Python itself cannot be asked."""
    with _asker(python, environ) as asker:
        entries = _entries(asker)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            return tuple(pool.map(lambda entry: _described(asker, entry, seconds), entries))


def find_plugin(name: str, python: str, environ: Mapping[str, str], *, seconds: float = DESCRIBE_SECONDS) -> Plugin:
    """The model of this name, ready for use. Raises UnknownName, and BadInput with its fault."""
    with _asker(python, environ) as asker:
        entries = _entries(asker)
        entry = next((entry for entry in entries if entry.name == name), None)
        if entry is None:
            known = [entry.name for entry in entries]
            where = f"It was looked for in {python}; --python names another, --plugin a package to install."
            raise UnknownName("model", name, known, fix=where)
        found = _described(asker, entry, seconds)
    if found.fault is not None:
        raise BadInput(
            f"The model {name!r} cannot be used: {found.fault.text.rstrip('.')}.",
            why=found.fault.traceback or "",
            fix=f"Mend {found.distribution} {found.distribution_version} in {python}, or remove it.",
            model=name,
        )
    return found


@contextmanager
def _asker(python: str, environ: Mapping[str, str]) -> Iterator[Asker]:
    with tempfile.TemporaryDirectory(prefix="crucible-models-") as folder:
        write_shim(Path(folder))
        yield Asker(python, Path(folder), environ)


def _entries(asker: Asker) -> tuple[Plugin, ...]:
    """What is offered, one of each name: two of one name have a fault, which describing them tells."""
    try:
        entries: Any = asker.ask(seconds=LIST_SECONDS)["entries"]
        return tuple({str(entry["name"]): _entry(entry, asker.python) for entry in entries}.values())
    except (KeyError, TypeError) as error:
        raise _not_asked(asker.python, f"Its answer cannot be read: {error!r}.") from error
    except NoAnswer as error:
        raise _not_asked(asker.python, "\n".join(filter(None, (f"It said nothing: {error}.", error.words)))) from error


def _not_asked(python: str, why: str) -> BadInput:
    fix = "Name another with --python. A crucible-ml that is installed there has to be as new as this one."
    return BadInput(f"{python} cannot be asked for its models.", why=why, fix=fix)


def _entry(entry: Mapping[str, Any], python: str) -> Plugin:
    return Plugin(str(entry["name"]), str(entry["value"]), str(entry["distribution"]), str(entry["version"]), python)


def _described(asker: Asker, entry: Plugin, seconds: float) -> Plugin:
    try:
        return _filled(entry, asker.ask("--model", entry.name, seconds=seconds))
    except NoAnswer as error:
        return replace(entry, fault=Fault(str(error), error.words or None))
    except (BadSchema, KeyError, TypeError, ValueError) as error:
        return replace(entry, fault=Fault(f"its description cannot be read: {error}"))


def _filled(entry: Plugin, answer: Mapping[str, Any]) -> Plugin:
    if "error" in answer:
        error = answer["error"]
        return replace(entry, fault=Fault(str(error["text"]), error["traceback"]))
    model, about = answer["model"], answer["model"]["metadata"]
    return replace(
        entry,
        version=str(about["version"]) or entry.distribution_version,
        description=str(about["description"]),
        framework=str(about["framework"]),
        min_gpu_memory_gb=float(about["min_gpu_memory_gb"]),
        methods=tuple(str(method) for method in model["methods"]),
        schema=None if model["schema"] is None else schema_of(model["schema"]),
        package=Path(model["package"]) if model["package"] else None,
    )
