"""The channel from an agent to the control plane: the contracts for runner and host, and the https implementation.

Every call is idempotent and raises the errors of `connection`; `Gap` says from which message to send again.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote, urlencode

from crucible.agent.link.connection import (
    ChannelError,
    Refused,
    ServerAddress,
    ServerConnection,
    ServerReply,
    Unreachable,
)
from crucible.wire.documents.desired import BadDesired, Desired, decode_desired
from crucible.wire.documents.messages import Batch, Message, encode_batch
from crucible.wire.http.client import HttpError, Request

UPLOAD_SECONDS = 60.0
UPLOAD_RATE = 5_000_000
"""Bytes per second that a slow server is expected to store."""
LONG_POLL_SLACK = 15.0
_CHUNK = 256 * 1024
MAX_SESSIONS = 64
_SESSION = re.compile(r"[A-Za-z0-9-]{1,64}")


class Gap(ChannelError):
    """The receiver has the messages up to `acked`, and got later ones without those in between."""

    def __init__(self, acked: int) -> None:
        super().__init__(f"the receiver has messages up to {acked}")
        self.acked = acked


class NoRoom(Unreachable):
    """The server's store is full: a retry helps once there is room."""


class ClaimedByAnother(ChannelError):
    """Another machine has claimed the single-use nonce: this one is a duplicate and must shut down."""


@dataclass(frozen=True)
class OptionalSeconds:
    """A limit that the server sent: seconds, or None for no limit."""

    seconds: float | None


@dataclass(frozen=True)
class SessionRequest:
    """A session that a user requested. `server_url`: the server that the user is connected to, if it is another one."""

    id: str
    server_url: str | None = None


@dataclass(frozen=True)
class DesiredAttempt:
    """The desired state of one attempt. `lease` and `ends_in` are None if the server sent none."""

    stop: bool = False
    checkpoint: int = 0
    settled: bool = False
    lease: OptionalSeconds | None = field(default=None, compare=False)
    ends_in: OptionalSeconds | None = field(default=None, compare=False)
    sessions: tuple[SessionRequest, ...] = ()


@dataclass(frozen=True)
class LogSegment:
    """A finished segment of the output: bytes `start` to `end`, in the file `path`."""

    n: int
    start: int
    end: int
    lines: int
    path: Path


class Channel(Protocol):
    """The channel of one runner, for one thread.

    `is_direct`: the control plane itself answers. Else a store does, and a successful call proves no contact.
    """

    is_direct: bool

    def desired(self, known: DesiredAttempt, wait: float) -> DesiredAttempt | None:
        """Return the desired state as soon as it differs from `known`; None after `wait` seconds without a change."""

    def send(self, messages: Sequence[Message]) -> int:
        """Store the messages; returns the highest number stored. Raises Gap."""

    def put_log(self, segment: LogSegment) -> str:
        """Store the segment; returns its SHA-256."""

    def put_tail(self, start: int, data: bytes) -> None:
        """Send output to users who follow the log now. It is not stored."""

    def put_artifact(self, name: str, content: BinaryIO, size: int, sha256: str) -> None:
        """Store a file of the outputs. Raises NoRoom."""

    def put_checkpoint(self, sha256: str, content: BinaryIO, size: int) -> None:
        """Store a checkpoint under its hash. Raises NoRoom."""

    def bundle(self, sha256: str, start: int) -> Iterator[bytes]:
        """Yield the bundle's bytes from `start` on."""

    def get_checkpoint(self, sha256: str, start: int) -> Iterator[bytes]:
        """Yield the bytes of a checkpoint of the attempt's job, from `start` on."""

    def secrets(self) -> dict[str, str]:
        """Return the job's secrets by variable. Raises Refused if one was deleted, NoCryptography."""

    def close(self) -> None: ...


class HttpChannel:
    """A runner's channel over HTTP to the agents' listener, authenticated by the attempt's secret."""

    is_direct = True

    def __init__(self, address: ServerAddress, attempt: str, rank: int, secret: str) -> None:
        self._link = ServerConnection(address, secret)
        self._secret = secret.encode()
        self._attempt = attempt
        self._rank = rank
        self._path = f"/agent/v1/attempts/{quote(attempt, safe='')}/{rank}"

    def close(self) -> None:
        self._link.close()

    def desired(self, known: DesiredAttempt, wait: float) -> DesiredAttempt | None:
        query = urlencode({"stop": int(known.stop), "checkpoint": known.checkpoint, "wait": f"{wait:g}"})
        query += "&" + urlencode({"sessions": ",".join(session.id for session in known.sessions)})
        answer = self._link.ask(Request("GET", f"{self._path}/desired?{query}", seconds=wait + LONG_POLL_SLACK))
        if answer.status != 200:
            return None
        return read_desired_attempt(answer.json())

    def send(self, messages: Sequence[Message]) -> int:
        body = encode_batch(Batch(self._attempt, self._rank, tuple(messages)), self._secret)
        answer = self._link.receive(Request("POST", f"{self._path}/messages", UPLOAD_SECONDS, body=body))
        acked = answer.json().get("acked")
        if answer.status == 409 and isinstance(acked, int):
            raise Gap(acked)
        self._link.check(answer)
        if not isinstance(acked, int):
            raise Unreachable("the server did not confirm which messages it stored")
        return acked

    def put_log(self, segment: LogSegment) -> str:
        data = segment.path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        path = f"{self._path}/logs/{segment.n}?start={segment.start}&lines={segment.lines}"
        headers = {"X-Content-SHA256": sha256}
        self._link.ask(Request("PUT", path, UPLOAD_SECONDS, headers=headers, body=data))
        return sha256

    def put_tail(self, start: int, data: bytes) -> None:
        self._link.ask(Request("POST", f"{self._path}/tail?start={start}", body=data))

    def put_artifact(self, name: str, content: BinaryIO, size: int, sha256: str) -> None:
        self._put_file(f"{self._path}/artifacts/{quote(name)}", content, size, sha256)

    def put_checkpoint(self, sha256: str, content: BinaryIO, size: int) -> None:
        self._put_file(f"{self._path}/checkpoints/{sha256}", content, size, sha256)

    def _put_file(self, path: str, content: BinaryIO, size: int, sha256: str) -> None:
        headers = {"X-Content-SHA256": sha256, "Content-Length": str(size)}
        answer = self._link.receive(Request("PUT", path, upload_seconds(size), headers=headers, body=content))
        try:
            self._link.check(answer)
        except Unreachable as error:
            if answer.status == HTTPStatus.INSUFFICIENT_STORAGE:
                raise NoRoom(str(error)) from error
            raise

    def secrets(self) -> dict[str, str]:
        values = self._link.ask(Request("GET", f"{self._path}/secrets")).json().get("secrets")
        if not isinstance(values, dict):
            raise Unreachable("the server did not send the secrets")
        return {str(name): str(value) for name, value in values.items()}

    def bundle(self, sha256: str, start: int) -> Iterator[bytes]:
        return self._get_file(f"/agent/v1/bundles/{sha256}?{urlencode({'attempt': self._attempt})}", start)

    def get_checkpoint(self, sha256: str, start: int) -> Iterator[bytes]:
        return self._get_file(f"{self._path}/checkpoints/{sha256}", start)

    def _get_file(self, path: str, start: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        response = self._link.open(Request("GET", path, UPLOAD_SECONDS, headers=headers))
        try:
            if response.status_code not in (200, 206):
                self._link.check(ServerReply(response.status_code, response.read()))
            yield from skip_bytes(response.pieces(_CHUNK), start if response.status_code == 200 else 0)
        except HttpError as error:
            raise Unreachable(f"the download broke off: {error}") from error
        finally:
            response.close()


def skip_bytes(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield all but the first `size` bytes: a server without range requests sends everything again."""
    for piece in pieces:
        if len(piece) > size:
            yield piece[size:]
        size = max(0, size - len(piece))


class MachineChannel(Protocol):
    """The channel of a host."""

    @property
    def socket(self) -> socket.socket | None:
        """The socket on which the answer arrives; None if `answer` has to be polled."""

    def claim(self, nonce: str, native_id: str) -> str:
        """Claim the machine; returns its secret. Raises ClaimedByAnother, Gone, Refused (a bad nonce), Unreachable."""

    def ask(self, version: int, wait: float, devices: str | None) -> float:
        """Request a document newer than `version`; returns the seconds after which the answer is overdue."""

    def answer(self) -> Desired | None:
        """Return the document; None if it has not changed. Raises ChannelError."""


class HttpMachineChannel:
    """A host's channel over HTTP to the agents' listener."""

    def __init__(self, address: ServerAddress, machine: str, secret: str | None) -> None:
        self.connection = ServerConnection(address, secret)
        self._machine = machine

    def claim(self, nonce: str, native_id: str) -> str:
        """Claim the machine; returns its secret. Raises ClaimedByAnother, Gone, Refused (a bad nonce), Unreachable."""
        body = json.dumps({"machine": self._machine, "nonce": nonce, "native_id": native_id}).encode()
        headers = {"Content-Type": "application/json"}
        answer = self.connection.receive(Request("POST", "/agent/v1/claim", headers=headers, body=body))
        if answer.status == 409:
            raise ClaimedByAnother("another machine has claimed this nonce")
        secret = self.connection.check(answer).json().get("secret")
        if not isinstance(secret, str):
            raise Unreachable("the server did not send the machine's secret")
        return secret

    @property
    def socket(self) -> socket.socket | None:
        return self.connection.socket

    def ask(self, version: int, wait: float, devices: str | None) -> float:
        request = self.desired_request(version, wait, devices)
        self.connection.send(request)
        return request.seconds

    def answer(self) -> Desired | None:
        return self.read_desired(self.connection.finish())

    def desired_request(self, version: int, wait: float, devices: str | None) -> Request:
        path = f"/agent/v1/machines/{quote(self._machine, safe='')}/desired?version={version}&wait={wait:g}"
        headers = {} if devices is None else {"X-Crucible-Devices": devices}
        return Request("GET", path, headers=headers, seconds=wait + LONG_POLL_SLACK)

    def read_desired(self, answer: ServerReply) -> Desired | None:
        """Return the document in the reply; None if it has not changed. Raises as `ServerConnection.check`."""
        if self.connection.check(answer).status != 200:
            return None
        try:
            return decode_desired(answer.body)
        except (BadDesired, AttributeError) as error:  # AttributeError: JSON of another shape
            raise Refused(200, str(error)) from error


def read_desired_attempt(doc: Mapping[str, object]) -> DesiredAttempt:
    """Return the desired state in the document. Unknown fields are ignored: servers may be newer than agents."""
    checkpoint = doc.get("checkpoint")
    return DesiredAttempt(
        bool(doc.get("stop")),
        checkpoint if isinstance(checkpoint, int) else 0,
        bool(doc.get("settled")),
        _optional_seconds(doc, "lease_seconds"),
        _optional_seconds(doc, "ends_in"),
        _session_requests(doc.get("sessions")),
    )


def _session_requests(items: object) -> tuple[SessionRequest, ...]:
    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return tuple(
        SessionRequest(item["id"], at if isinstance(at, str) else None)
        for item, at in ((item, item.get("at")) for item in found[:MAX_SESSIONS])
        if isinstance(item.get("id"), str) and _SESSION.fullmatch(item["id"])
    )


def _optional_seconds(doc: Mapping[str, object], name: str) -> OptionalSeconds | None:
    value = doc.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return OptionalSeconds(float(value))
    return OptionalSeconds(None) if name in doc and value is None else None


def upload_seconds(size: int) -> float:
    """Return the timeout of an upload of this size: the server first makes it durable, perhaps on a slow disk."""
    return UPLOAD_SECONDS + size / UPLOAD_RATE


def log_message_data(segment: LogSegment, sha256: str) -> tuple[tuple[str, object], ...]:
    """Return the fields of the LOG message for a stored segment."""
    return (
        ("n", segment.n),
        ("start", segment.start),
        ("end", segment.end),
        ("lines", segment.lines),
        ("sha256", sha256),
    )
