"""Messages from a runner to the control plane: numbered, signed, in batches.

A runner numbers its messages 1, 2, 3 … per (attempt, rank), spools each to disk before it is sent, and sends
them in batches. The receiver stores a batch in order, ignores numbers it has, refuses gaps, and acknowledges
the highest number stored. The same bytes travel over https and, as create-only objects, through a store.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass

VERSION = 1
MAX_BATCH_BYTES = 4 * 1024 * 1024


class MessageKind(str, enum.Enum):
    """The kinds of message; the comment names the keys of `data`."""

    STAGING = "staging"  # what: str (a line for users: "building the environment")
    STARTED = "started"  # pid: int, pgid: int, python: str, command: [str], limits: str, environment: str
    POINTS = "points"  # series: {name: [[step, value, at], ...]}; value null stands for nan, "inf", "-inf"
    PROGRESS = "progress"  # fraction, epoch, total_epochs, step, total_steps, loss, eta_seconds, message
    LOG = "log"  # n, start, end (byte offsets in the attempt's output), lines, sha256: a stored segment
    ARTIFACT = "artifact"  # path, size, sha256: a stored file
    CHECKPOINT = "checkpoint"  # name, form (file | folder), size, sha256, step, metric: a stored checkpoint
    RESULT = "result"  # kind, value: the job's result, see results.py; the last one counts
    NOTICE = "notice"  # seconds, text: the provider announced that it reclaims the machine
    NOTE = "note"  # text: something the user should see (output cut, limit not enforced)
    EXITED = "exited"  # code: int|None, signal: int|None, cause: Cause value, text, seconds, cpu_seconds, peak_memory
    ENDED = "ended"  # nothing follows: all outputs have arrived. complete: bool, text


_KINDS = frozenset(kind.value for kind in MessageKind)


class Cause(str, enum.Enum):
    """Why the user's process ended, as the runner saw it."""

    EXIT = "exit"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"  # a stop was requested
    STAGING_FAILED = "staging_failed"  # bundle, environment or data could not be prepared
    NOT_STARTED = "not_started"  # stopped before the program started
    RUNNER_LOST = "runner_lost"  # the runner died; its successor killed what was left
    INTERRUPTED = "interrupted"  # the provider reclaims the machine
    SUSPENDED = "suspended"  # the machine's maximum runtime is nearly reached
    FENCED = "fenced"  # out of contact for longer than the lease allows


@dataclass(frozen=True)
class Message:
    """One message. `at` is the agent's wall clock in seconds: for users to see, never compared with the server's."""

    n: int
    kind: MessageKind
    at: float
    data: Mapping[str, object]


@dataclass(frozen=True)
class Batch:
    attempt: str
    rank: int
    messages: tuple[Message, ...]


class BadBatch(ValueError):
    """The bytes are not a batch, or the signature does not match."""


def encode_batch(batch: Batch, secret: bytes) -> bytes:
    """Return the batch as bytes: a signature line, then the body that it signs."""
    body = json.dumps(
        {
            "v": VERSION,
            "attempt": batch.attempt,
            "rank": batch.rank,
            "messages": [[m.n, m.kind.value, m.at, dict(m.data)] for m in batch.messages],
        },
        separators=(",", ":"),
        allow_nan=False,
    ).encode()
    return sign(body, secret).encode() + b"\n" + body


def decode_batch(raw: bytes, secret: bytes) -> Batch:
    """Return the batch in `raw`. Raises BadBatch unless it is complete and signed with `secret`."""
    signature, _, body = raw.partition(b"\n")
    if not hmac.compare_digest(signature, sign(body, secret).encode()):
        raise BadBatch("the signature does not match")
    try:
        doc = json.loads(body)
        if doc["v"] != VERSION:
            raise BadBatch(f"message version {doc['v']!r}, this side supports {VERSION}")
        messages = tuple(_message(*parts) for parts in doc["messages"])
        return Batch(str(doc["attempt"]), int(doc["rank"]), messages)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadBatch(f"not a batch: {error}") from error


def _message(n: int, kind: str, at: float, data: Mapping[str, object]) -> Message:
    """Return the message. An unknown kind (of a newer agent) becomes a note, as numbers must have no gaps."""
    if kind not in _KINDS:
        return Message(int(n), MessageKind.NOTE, float(at), {"text": f"a message of the unknown kind {kind!r}"})
    return Message(int(n), MessageKind(kind), float(at), dict(data))


def sign(body: bytes, secret: bytes) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def derive_secret(key: bytes, purpose: str, name: str) -> bytes:
    """Return the secret of one thing, derived from the deployment's key, so that no secret is stored.

    Purposes: `machine` (host's token), `nonce` (bootstrap), `attempt` (runner's token and message
    signatures).
    """
    return hmac.new(key, f"{purpose}:{name}".encode(), hashlib.sha256).hexdigest().encode()
