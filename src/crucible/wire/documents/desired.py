"""The desired document: the state that the control plane wants of one machine, overwritten and versioned.

There are no commands: the host fetches the document (long poll) and makes the machine match it. An assignment that is
no longer in it has been settled; if its runner is still running, it has to end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Optional

VERSION = 1


@dataclass(frozen=True)
class Limits:
    """Limits of one attempt; None means no limit."""

    memory_bytes: Optional[int] = None
    cpus: Optional[float] = None
    seconds: Optional[float] = None
    gpus: tuple[int, ...] = ()
    output_bytes: Optional[int] = None


@dataclass(frozen=True)
class Environment:
    """The Python environment of the job (default: the machine's python3).

    `interpreter`: a path on this machine. `requirements`: requirement lines to build from, cached by their hash.
    `project`: a folder in the bundle whose pyproject.toml is installed. `python`: the version to build with. `origin`
    describes for the user where an interpreter comes from.
    """

    interpreter: Optional[str] = None
    requirements: tuple[str, ...] = ()
    project: Optional[str] = None
    python: Optional[str] = None
    origin: str = ""


@dataclass(frozen=True)
class DataItem:
    """An input placed under $CRUCIBLE_DATA_DIR/<name>. `source` is a local path or a URI."""

    name: str
    source: str


@dataclass(frozen=True)
class Resume:
    """The checkpoint to resume from. `form` is `file`, or `folder`: then its bytes are a tar of the folder."""

    id: str
    name: str
    form: str
    size: int
    sha256: str
    step: Optional[int] = None


@dataclass(frozen=True)
class Assignment:
    """One rank of one attempt on this machine. `stop`: end it, with `grace` seconds between SIGTERM and SIGKILL.

    `checkpoint` counts requested checkpoints: when it rises, the program is asked to save one. `secrets` names the
    variables whose values the runner fetches before it starts the program; the values are in no document. `outputs` are
    patterns of the files in the working directory that are kept. `workdir` is the folder of the bundle to start in
    (default: its top).
    """

    attempt: str
    job: str
    rank: int
    secret: str
    command: tuple[str, ...]
    bundle: Optional[str] = None
    in_place: Optional[str] = None
    environment: Environment = field(default_factory=Environment)
    env: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataItem, ...] = ()
    limits: Limits = field(default_factory=Limits)
    grace: float = 10.0
    resume_from: Optional[Resume] = None
    stop: bool = False
    checkpoint: int = 0
    secrets: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("*",)
    workdir: Optional[str] = None


@dataclass(frozen=True)
class Desired:
    """`lease_seconds`: how long jobs may run without contact; None (backends that do not bill) for no limit.

    `ends_in`: the machine's remaining seconds when the document was made; the agent saves and ends the running programs
    before they are over. `release`: no more work will come; exit when idle.
    """

    machine: str
    version: int
    assignments: tuple[Assignment, ...] = ()
    lease_seconds: Optional[float] = None
    ends_in: Optional[float] = None
    release: bool = False


class BadDesired(ValueError):
    """The bytes are not a desired document that this version understands."""


def encode_desired(desired: Desired) -> bytes:
    return json.dumps({"v": VERSION, **asdict(desired)}, separators=(",", ":")).encode()


def decode_desired(raw: bytes) -> Desired:
    """Return the document in `raw`. Unknown fields are ignored: an agent outlives many server versions."""
    try:
        doc = json.loads(raw)
        if doc["v"] != VERSION:
            raise BadDesired("a desired document of another version; update the agent")
        assignments = tuple(_assignment(item) for item in doc["assignments"])
        return Desired(**{**_known(Desired, doc), "assignments": assignments})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadDesired(f"not a desired document: {error}") from error


def _assignment(doc: dict[str, Any]) -> Assignment:
    limits = {**doc["limits"], "gpus": tuple(doc["limits"].get("gpus", ()))}
    environment = {**doc["environment"], "requirements": tuple(doc["environment"].get("requirements", ()))}
    parts = {
        # Version 0.1.0 put the command of a job with secrets there, also in the assignment files of its hosts.
        "command": tuple(doc.get("guarded") or doc["command"]),
        "secrets": tuple(doc.get("secrets", ())),
        "outputs": tuple(doc.get("outputs", ("*",))),
        "limits": Limits(**_known(Limits, limits)),
        "environment": Environment(**_known(Environment, environment)),
        "data": tuple(DataItem(**_known(DataItem, item)) for item in doc["data"]),
        "resume_from": _resume(doc.get("resume_from")),
    }
    return Assignment(**{**_known(Assignment, doc), **parts})


def _resume(doc: Optional[dict[str, Any]]) -> Optional[Resume]:
    return None if doc is None else Resume(**_known(Resume, doc))


def _known(kind: type, doc: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in doc.items() if name in names}
