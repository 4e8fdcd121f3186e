"""Reading in a process of its own, which is ended when it takes too long or too much.

A program to be read may be made to be hard to read. Whatever it does to its reader happens there.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from pydantic import ConfigDict, TypeAdapter, ValidationError

from crucible.analysis.conclusions.runtime import T4, Reference
from crucible.analysis.sources import Sources
from crucible.core.profile import Conclusion, Entrypoint, Profile

_PLAIN = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
_ASK = "What does it need? It could not be read."


@dataclass(frozen=True)
class Bounds:
    """`seconds` of processor and of waiting, `memory` in bytes of address space."""

    seconds: float = 10.0
    memory: int = 1_024 * 1024 * 1024


USUAL = Bounds()


def analyse_within(sources: Sources, bounds: Bounds = USUAL, reference: Reference = T4) -> Profile:
    """The profile, or one that says why there is none. Blocks for `seconds` at most: call it off the event loop."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-X", "faulthandler=0", "-c", _code(bounds)],
            input=_task().dump_json(_Task(sources, reference)),
            capture_output=True,
            timeout=bounds.seconds + 2.0,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _nothing(sources, f"Reading it took longer than {bounds.seconds:g} s.")
    if done.returncode != 0 or not done.stdout:
        return _nothing(sources, f"Reading it took more than {bounds.seconds:g} s or {bounds.memory // 2**20} MiB.")
    try:
        return _answer().validate_json(done.stdout).profile
    except ValidationError as error:
        return _nothing(sources, f"What was read of it makes no sense: {error.errors()[0]['msg']}.")


@dataclass(frozen=True)
class _Task:
    """What the other side is told. Both sides speak JSON: what has read a hostile program is not trusted with more."""

    __pydantic_config__ = _PLAIN

    sources: Sources
    reference: Reference


@cache
def _task() -> TypeAdapter[_Task]:
    return TypeAdapter(_Task)


@dataclass(frozen=True)
class _Answer:
    __pydantic_config__ = _PLAIN

    profile: Profile


@cache
def _answer() -> TypeAdapter[_Answer]:
    return TypeAdapter(_Answer)


def _code(bounds: Bounds) -> str:
    path = [each for each in sys.path if each]
    work = f"worker({bounds.seconds!r}, {bounds.memory!r})"
    return f"import sys; sys.path[:0] = {path!r}; from crucible.analysis.bounded import worker; {work}"


def worker(seconds: float, memory: int) -> None:
    """The other side: limits itself before it looks at anything."""
    from crucible.analysis.analyse import analyse

    whole = max(1, int(seconds + 0.999))
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    task = _task().validate_json(sys.stdin.buffer.read())
    sys.stdout.buffer.write(_answer().dump_json(_Answer(analyse(task.sources, task.reference))))


def _nothing(sources: Sources, why: str) -> Profile:
    kind = Entrypoint.NOTEBOOK if sources.entry.endswith(".ipynb") else Entrypoint.SCRIPT
    return Profile(
        gpu=Conclusion(question=_ASK, why=why),
        gpu_memory_gb=Conclusion(question=_ASK, why=why),
        runtime_hours=Conclusion(question=_ASK, why=why),
        entrypoint=Conclusion(kind),
        notes=(f"{sources.entry}: {why}",),
    )
