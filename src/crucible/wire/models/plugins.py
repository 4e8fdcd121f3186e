"""Describe model plugins in a subprocess of their own Python, without importing them here.

A plugin that fails, hangs or is invalid is returned with its problem; the others are still described.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from crucible.wire.models.options import BadSchema, Option, read_schema
from crucible.wire.models.subprocess_rpc import RpcError, SubprocessRpc
from crucible.wire.shim import write_shim

LIST_SECONDS = 20.0
DESCRIBE_SECONDS = 60.0
"""Long, because a plugin may import a large framework."""
AT_ONCE = 4


@dataclass(frozen=True)
class PluginProblem:
    """Why a plugin cannot be used; `traceback` if its own code raised."""

    text: str
    traceback: Optional[str] = None


@dataclass(frozen=True)
class Plugin:
    """A model of an installed package. `schema` None accepts any config; with a `problem` all fields below are unset.

    `package` is the folder or file of its top-level package, if that is one path.
    """

    name: str
    entry: str
    distribution: str
    distribution_version: str
    python: str
    problem: Optional[PluginProblem] = None
    title: str = ""
    version: str = ""
    description: str = ""
    framework: str = ""
    min_gpu_memory_gb: float = 0
    methods: tuple[str, ...] = ()
    schema: Optional[Mapping[str, Option]] = None
    package: Optional[Path] = None

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "entry": self.entry,
            "distribution": self.distribution,
            "distribution_version": self.distribution_version,
            "python": self.python,
            "title": self.title,
            "version": self.version,
            "description": self.description,
            "framework": self.framework,
            "min_gpu_memory_gb": self.min_gpu_memory_gb,
            "methods": list(self.methods),
            "schema": None if self.schema is None else {name: item.as_json() for name, item in self.schema.items()},
            "error": None if self.problem is None else {"text": self.problem.text, "traceback": self.problem.traceback},
        }


class ModelNotFound(LookupError):
    """No package has a model of this name; `known` are those that exist."""

    def __init__(self, known: tuple[str, ...]) -> None:
        super().__init__("no such model")
        self.known = known


class _TimeShares:
    """Divides the remaining time among plugins that are described a few at once, so that all meet the deadline."""

    def __init__(self, waiting: int, deadline: float) -> None:
        self._waiting = waiting
        self._deadline = deadline
        self._lock = threading.Lock()

    def take(self) -> float:
        """Return the seconds for the next plugin: a fair share of those that are left."""
        with self._lock:
            rounds = -(-self._waiting // AT_ONCE)
            self._waiting -= 1
        return max(self._deadline - time.monotonic(), 0.0) / rounds


def describe_all(python: str, environ: Mapping[str, str], seconds: float = DESCRIBE_SECONDS) -> tuple[Plugin, ...]:
    """Return all models of this Python within `seconds`. Blocks; raises RpcError if the Python does not respond.

    A plugin that does not respond in time is returned with that as its problem.
    """
    deadline = time.monotonic() + seconds
    with _open_rpc(python, environ) as rpc:
        entries = _entries(rpc, min(LIST_SECONDS, seconds))
        turns = _TimeShares(len(entries), deadline)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            try:
                return tuple(pool.map(lambda entry: _describe(rpc, entry, turns.take()), entries))
            except BaseException:
                # On Ctrl-C: leaving the pool waits for its threads, and a plugin may hang.
                rpc.cancelled.set()
                raise


def describe_one(name: str, python: str, environ: Mapping[str, str], seconds: float = DESCRIBE_SECONDS) -> Plugin:
    """Return the model of this name, perhaps with a problem. Blocks up to `seconds`; raises ModelNotFound, RpcError."""
    deadline = time.monotonic() + seconds
    with _open_rpc(python, environ) as rpc:
        entries = _entries(rpc, min(LIST_SECONDS, seconds))
        entry = next((entry for entry in entries if entry.name == name), None)
        if entry is None:
            raise ModelNotFound(tuple(entry.name for entry in entries))
        return _describe(rpc, entry, max(deadline - time.monotonic(), 0.0))


@contextmanager
def _open_rpc(python: str, environ: Mapping[str, str]) -> Iterator[SubprocessRpc]:
    with tempfile.TemporaryDirectory(prefix="crucible-models-") as folder:
        write_shim(Path(folder))
        yield SubprocessRpc(python, Path(folder), environ)


def _entries(rpc: SubprocessRpc, seconds: float) -> tuple[Plugin, ...]:
    """Return the entry points, one for each name; describing a name that two packages claim reports the conflict."""
    try:
        entries: Any = rpc.call(seconds=seconds)["entries"]
        return tuple({str(entry["name"]): _entry(entry, rpc.python) for entry in entries}.values())
    except (KeyError, TypeError) as error:
        raise RpcError(f"its response cannot be read: {error!r}") from error


def _entry(entry: Mapping[str, Any], python: str) -> Plugin:
    return Plugin(str(entry["name"]), str(entry["value"]), str(entry["distribution"]), str(entry["version"]), python)


def _describe(rpc: SubprocessRpc, entry: Plugin, seconds: float) -> Plugin:
    try:
        return _fill(entry, rpc.call("--model", entry.name, seconds=seconds))
    except RpcError as error:
        return replace(entry, problem=PluginProblem(str(error), error.stderr or None))
    except (BadSchema, KeyError, TypeError, ValueError, OverflowError) as error:
        return replace(entry, problem=PluginProblem(f"its description cannot be read: {error}"))


def _fill(entry: Plugin, answer: Mapping[str, Any]) -> Plugin:
    if "error" in answer:
        error = answer["error"]
        return replace(entry, problem=PluginProblem(str(error["text"]), error["traceback"]))
    model, about = answer["model"], answer["model"]["metadata"]
    return replace(
        entry,
        title=str(about["name"]),
        version=str(about["version"]) or entry.distribution_version,
        description=str(about["description"]),
        framework=str(about["framework"]),
        min_gpu_memory_gb=float(about["min_gpu_memory_gb"]),
        methods=tuple(str(method) for method in model["methods"]),
        schema=None if model["schema"] is None else read_schema(model["schema"]),
        package=Path(model["package"]) if model["package"] else None,
    )
