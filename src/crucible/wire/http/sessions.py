"""The session protocol: a command, or a connection to a port, at a running job.

A session is a sequence of frames over WebSockets, from a client through the server to the job's agent and back. A frame
is one binary message: a byte for its kind, then bytes or JSON. Data is limited by credit: each side may send
`WINDOW` bytes, and then as many more as the other side reports to have passed on. So no side has to stop reading,
and a stream that is not read costs no more than a window.

    client                          agent
    OPEN  what to open        ->
                              <-    READY
    DATA, END, RESIZE, CREDIT ->
                              <-    DATA, ERROR_DATA, END, CREDIT
                              <-    OVER  how it ended; nothing follows
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Union

CHUNK = 32 * 1024
"""Maximum number of data bytes in a frame."""
MAX_FRAME = 60 * 1024
"""Maximum number of bytes of any frame; sockets are set up to refuse a little more than this."""
WINDOW = 256 * 1024
MAX_WORDS = 1000
MAX_COMMAND = 32 * 1024
"""Maximum number of bytes of a command with all its words."""
MAX_SIDE = 10_000
"""Maximum number of rows or columns of a terminal."""
MAX_CREDIT = 2**31
BEGIN_SECONDS = 30.0
"""Seconds that a session waits for the program of a job that is starting."""
_CREDIT = struct.Struct(">I")


class FrameKind(enum.Enum):
    OPEN = b"O"
    READY = b"R"
    DATA = b"D"
    """Input or output of a command, or data of a connection."""
    ERROR_DATA = b"X"
    """Standard error of a command."""
    END = b"E"
    """No more data follows from this side."""
    CREDIT = b"C"
    RESIZE = b"S"
    OVER = b"V"


FROM_CLIENT = frozenset({FrameKind.OPEN, FrameKind.DATA, FrameKind.END, FrameKind.CREDIT, FrameKind.RESIZE})
FROM_AGENT = frozenset(
    {FrameKind.READY, FrameKind.DATA, FrameKind.ERROR_DATA, FrameKind.END, FrameKind.CREDIT, FrameKind.OVER}
)


class BadFrame(ValueError):
    """The bytes are not a frame that this side may send."""


@dataclass(frozen=True)
class Size:
    """The size of a terminal."""

    rows: int = 24
    columns: int = 80

    def __post_init__(self) -> None:
        if not (_is_number(self.rows, 1, MAX_SIDE) and _is_number(self.columns, 1, MAX_SIDE)):
            raise BadFrame(f"a terminal has 1 to {MAX_SIDE} rows and columns")


@dataclass(frozen=True)
class Command:
    """A command to run; without words, the shell of the job's user. With `terminal` it runs in one of that size.

    `term` is the kind of terminal ($TERM).
    """

    words: tuple[str, ...] = ()
    terminal: Optional[Size] = None
    term: str = ""

    def __post_init__(self) -> None:
        if len(self.words) > MAX_WORDS or sum(len(word) + 1 for word in self.words) > MAX_COMMAND:
            raise BadFrame(f"a command has at most {MAX_WORDS} words and {MAX_COMMAND} characters")
        if any("\0" in word for word in self.words):
            raise BadFrame("the words of a command are texts without NUL")
        if self.words and not self.words[0]:
            raise BadFrame("the first word of a command names a program")
        if len(self.term) > 64 or not (self.term.isascii() and self.term.isprintable()):
            raise BadFrame("the kind of a terminal is a short name")


@dataclass(frozen=True)
class Connection:
    """A connection to this port, on which a process of the job listens."""

    port: int

    def __post_init__(self) -> None:
        if not _is_number(self.port, 1, 65535):
            raise BadFrame("a port is a number from 1 to 65535")


@dataclass(frozen=True)
class Ports:
    """Ask for the ports on which processes of the job listen; the response is `Over.ports`."""


Opening = Union[Command, Connection, Ports]
OPENINGS: Mapping[str, Any] = {"command": Command, "connection": Connection, "ports": Ports}


@dataclass(frozen=True)
class Problem:
    """Why a session was refused, with the fields of every API error; `status` as in HTTP."""

    code: str
    status: int
    what: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Over:
    """How a session ended: the exit `code`, or the `signal` that ended the command, or else the `problem`.

    `job_ended`: it was ended because its job was.
    """

    code: Optional[int] = None
    signal: Optional[int] = None
    problem: Optional[Problem] = None
    job_ended: bool = False
    ports: tuple[int, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """The exit code as a shell reports it."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.code is None else self.code


def data_frame(content: bytes, kind: FrameKind = FrameKind.DATA) -> bytes:
    return kind.value + content


def end_frame() -> bytes:
    return FrameKind.END.value


def ready_frame() -> bytes:
    return FrameKind.READY.value


def credit_frame(count: int) -> bytes:
    return FrameKind.CREDIT.value + _CREDIT.pack(count)


def resize_frame(size: Size) -> bytes:
    return _json(FrameKind.RESIZE, asdict(size))


def open_frame(wanted: Opening) -> bytes:
    name = next(name for name, kind in OPENINGS.items() if isinstance(wanted, kind))
    return _json(FrameKind.OPEN, {"kind": name, **asdict(wanted)})


def over_frame(how: Over) -> bytes:
    return _json(FrameKind.OVER, asdict(how))


def frame_kind(frame: bytes, allowed: frozenset[FrameKind]) -> FrameKind:
    """Return the kind of a frame. Raises BadFrame if it is too long, unknown, or not allowed from that side."""
    if len(frame) > MAX_FRAME:
        raise BadFrame(f"a frame of {len(frame)} bytes; at most {MAX_FRAME} are allowed")
    try:
        kind = FrameKind(frame[:1])
    except ValueError:
        raise BadFrame("a frame of an unknown kind") from None
    if kind not in allowed:
        raise BadFrame(f"{kind.name} is not sent from that side")
    return kind


def read_credit(frame: bytes) -> int:
    if len(frame) != 1 + _CREDIT.size:
        raise BadFrame("credit is a number of four bytes")
    count = int(_CREDIT.unpack(frame[1:])[0])
    if count > MAX_CREDIT:
        raise BadFrame("too much credit")
    return count


def read_size(frame: bytes) -> Size:
    size: Size = _build(Size, _object(frame))
    return size


def read_opening(frame: bytes) -> Opening:
    doc = _object(frame)
    kind = OPENINGS.get(str(doc.pop("kind", "")))
    if kind is None:
        raise BadFrame("it says neither command nor connection nor ports")
    if kind is Command:
        words, terminal = doc.get("words", ()), doc.get("terminal")
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise BadFrame("the words of a command are a list of texts")
        if not isinstance(doc.get("term", ""), str):
            raise BadFrame("the kind of a terminal is a text")
        if terminal is not None and not isinstance(terminal, dict):
            raise BadFrame("terminal has rows and columns")
        doc = {**doc, "words": tuple(words), "terminal": None if terminal is None else _build(Size, terminal)}
    made: Opening = _build(kind, doc)
    return made


def read_over(frame: bytes) -> Over:
    doc = _object(frame)
    problem, ports = doc.get("problem"), doc.get("ports", ())
    if not isinstance(ports, (list, tuple)) or not all(_is_number(port, 1, 65535) for port in ports):
        raise BadFrame("ports are numbers")
    if not (problem is None or isinstance(problem, dict)):
        raise BadFrame("a problem has a code and a text")
    for name in ("code", "signal"):
        if not (doc.get(name) is None or _is_number(doc[name], 0, 2**31)):
            raise BadFrame(f"{name} is a number")
    return Over(
        doc.get("code"),
        doc.get("signal"),
        None if problem is None else _problem(problem),
        bool(doc.get("job_ended")),
        tuple(ports),
    )


class CreditWindow:
    """The number of data bytes that one side may still send."""

    def __init__(self, size: int = WINDOW) -> None:
        self.room = size
        self._size = size

    def spend(self, count: int) -> None:
        """Record bytes that this side sent. Exceeding the credit a little does no harm."""
        self.room -= count

    def receive(self, count: int) -> None:
        """Record bytes that the other side sent. Raises BadFrame if they exceed the credit."""
        if count > self.room:
            raise BadFrame("more data than there was credit for")
        self.room -= count

    def grant(self, count: int) -> None:
        """Record bytes that the other side has passed on. Raises BadFrame if more than were sent."""
        if self.room + count > self._size:
            raise BadFrame("credit for data that were not sent")
        self.room += count


def _problem(doc: Mapping[str, Any]) -> Problem:
    status = doc.get("status")
    texts = {name: str(doc.get(name, ""))[:4000] for name in ("code", "what", "why", "fix")}
    return Problem(status=int(status or 0) if _is_number(status, 400, 599) else 500, **texts)


def _build(kind: Any, doc: Mapping[str, Any]) -> Any:
    """Return an object from the known fields; those that a newer side adds are ignored."""
    known = {name: value for name, value in doc.items() if name in kind.__dataclass_fields__}
    try:
        return kind(**known)
    except TypeError as error:
        raise BadFrame(f"not a {kind.__name__.lower()}: {error}") from error


def _json(kind: FrameKind, doc: Mapping[str, object]) -> bytes:
    return kind.value + json.dumps(doc, separators=(",", ":")).encode()


def _object(frame: bytes) -> dict[str, Any]:
    try:
        doc = json.loads(frame[1:])
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from error
    if not isinstance(doc, dict):
        raise BadFrame("not an object")
    return doc


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
