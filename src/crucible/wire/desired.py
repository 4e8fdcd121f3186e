"""What the control plane wants of one machine: a single document, overwritten and versioned.

There are no orders: the host fetches this document (ETag or long-poll) and makes it true. An assignment that
is no longer listed has been settled; its runner, if any is left, is to end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from typing import Any, Optional

from crucible.wire.values import dataclass

VERSION = 1


@dataclass(frozen=True)
class Limits:
    """None means: no limit."""

    memory_bytes: Optional[int] = None
    cpus: Optional[float] = None
    seconds: Optional[float] = None
    gpus: tuple[int, ...] = ()
    output_bytes: Optional[int] = None


@dataclass(frozen=True)
class Environment:
    """Which Python runs the job. Exactly one way is set; none of them: the machine's python3.

    `interpreter`: a path on this machine. `requirements`: requirement lines to build from, cached by their
    hash. `project`: folder inside the bundle whose pyproject.toml is installed. `python`: version wanted for
    a build.
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
    """The checkpoint to start from. `form` is `file`, or `folder`: then its bytes are a tar of that folder."""

    id: str
    name: str
    form: str
    size: int
    sha256: str
    step: Optional[int] = None


@dataclass(frozen=True)
class Assignment:
    """One rank of one attempt on this machine. `stop` says: end it, `grace` seconds between TERM and KILL.

    `checkpoint` counts the times a checkpoint was asked for: when it rises, the program is told to save one.
    `secrets` are the variables whose values the runner asks for when it starts the program; they are in no
    document. `guarded` is the command as it travels with secrets: see `_guarded`.
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
    guarded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Desired:
    """`lease_seconds` is the agent's right to run without contact; None (places that do not bill): for ever.

    `ends_in` is how many seconds the machine may still live, from the moment this document was made: before
    that time is over the agent saves and ends what runs. `release` says: no work will come, end when idle.
    """

    machine: str
    version: int
    assignments: tuple[Assignment, ...] = ()
    lease_seconds: Optional[float] = None
    ends_in: Optional[float] = None
    release: bool = False


class BadDesired(ValueError):
    """The bytes are no desired document this side understands."""


TOO_OLD = (
    "The agent on this machine is older than the server and cannot hand secrets to a job. "
    "Once nothing runs here, let a new one come (crucible down), then go on: crucible resume."
)


def encode_desired(desired: Desired) -> bytes:
    desired = replace(desired, assignments=tuple(map(_guarded, desired.assignments)))
    return json.dumps({"v": VERSION, **asdict(desired)}, separators=(",", ":")).encode()


def decode_desired(raw: bytes) -> Desired:
    """The document in `raw`. What a newer server adds is passed over: an agent outlives many servers."""
    try:
        doc = json.loads(raw)
        if doc["v"] != VERSION:
            raise BadDesired("a desired document of another version; update the agent")
        assignments = tuple(_assignment(item) for item in doc["assignments"])
        return Desired(**{**_known(Desired, doc), "assignments": assignments})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadDesired(f"not a desired document: {error}") from error


def _guarded(assignment: Assignment) -> Assignment:
    """With secrets the command goes where only agents look that know of them.

    An older agent passes over what it does not know, and would run the program without them: it finds, instead of
    the command, one that says what is wrong and fails.
    """
    if not assignment.secrets:
        return assignment
    refusal = ("/bin/sh", "-c", f"echo '{TOO_OLD}' >&2; exit 78")
    return replace(assignment, command=refusal, guarded=assignment.command)


def _assignment(doc: dict[str, Any]) -> Assignment:
    limits = {**doc["limits"], "gpus": tuple(doc["limits"].get("gpus", ()))}
    environment = {**doc["environment"], "requirements": tuple(doc["environment"].get("requirements", ()))}
    parts = {
        "command": tuple(doc.get("guarded") or doc["command"]),
        "guarded": (),
        "secrets": tuple(doc.get("secrets", ())),
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
