"""All errors that Crucible raises on purpose, as one tree.

CrucibleError                what happened, why, and the command or setting that fixes it
├── BadInput                 the request is invalid or out of bounds (usage, exit code 2)
│   └── UnknownName          an unknown name; carries the nearest known one
├── NotFound                 no such job, attempt, machine, artifact (exit code 3)
├── NotAllowed               missing, wrong or expired credentials (exit code 4)
├── Forbidden                the caller is known but lacks the permission (exit code 4)
├── TooManyAttempts          rate limit exceeded; carries the seconds to wait (exit code 4)
├── Conflict                 the thing changed meanwhile, or is in a state that forbids this (exit code 5)
├── NoCapacity               no connected backend can hold the job (exit code 6)
├── RefusedByPolicy          a budget or a rule says no (exit code 7)
├── TimedOut                 a timeout expired (exit code 8)
├── Unreachable              a server or provider does not answer (exit code 9)
└── Trouble                  the server's surroundings fail: disk, database, store, port (exit code 1)
    └── DiskFull             no room left where state is kept

Other packages add leaves below these (backends/base.py, storage/errors.py, control/db/port.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class CrucibleError(Exception):
    """An expected failure, explained to the user in three parts.

    `what` happened in one sentence, `why` it probably did, and the `fix`: a command or a setting.
    `data` holds values for programs (never secrets).
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, what: str, *, why: str = "", fix: str = "", **data: object) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.data = data

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.why, self.fix) if part)


class BadInput(CrucibleError):
    code = "bad_input"
    exit_code = 2
    http_status = 422


class UnknownName(BadInput):
    """There is no `kind` of this `name`; the fix suggests the closest known name."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], *, fix: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
        meant = next((n for n in names if near and n.lower() == near[0]), None)
        hint = f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(names) or 'none'}."
        super().__init__(f"There is no {kind} {name!r}.", fix=f"{hint} {fix}".strip(), name=name, meant=meant)
        self.meant = meant


class NotFound(CrucibleError):
    code = "not_found"
    exit_code = 3
    http_status = 404


class NotAllowed(CrucibleError):
    code = "not_allowed"
    exit_code = 4
    http_status = 401


class Forbidden(CrucibleError):
    code = "forbidden"
    exit_code = 4
    http_status = 403


class TooManyAttempts(CrucibleError):
    """`data["retry_after"]` is in seconds."""

    code = "too_many_tries"
    exit_code = 4
    http_status = 429


class Conflict(CrucibleError):
    code = "conflict"
    exit_code = 5
    http_status = 409


class NoCapacity(CrucibleError):
    code = "no_capacity"
    exit_code = 6
    http_status = 422


class RefusedByPolicy(CrucibleError):
    code = "refused_by_policy"
    exit_code = 7
    http_status = 403


class TimedOut(CrucibleError):
    code = "timed_out"
    exit_code = 8
    http_status = 504


class Unreachable(CrucibleError):
    code = "unreachable"
    exit_code = 9
    http_status = 503


class Trouble(CrucibleError):
    code = "trouble"
    exit_code = 1
    http_status = 503


class DiskFull(Trouble):
    code = "disk_full"
    http_status = 507
