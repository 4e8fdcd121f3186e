"""Following one job: frames over a WebSocket, from cursors, over lost connections and restarted servers.

Where a WebSocket cannot be had (behind some proxies) the same frames come from polling.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from crucible.client.api import routes
from crucible.client.api.resource import path_of
from crucible.client.transport.address import is_loopback
from crucible.client.transport.clock import MonotonicClock
from crucible.client.transport.http import Endpoint, auth_headers, unreachable
from crucible.core.errors import TimedOut, Unreachable
from crucible.core.ids import is_id, short
from crucible.core.views.frames import AnyFrame, Cursors, EventFrame, Frame, JobFrame, LogFrame

if TYPE_CHECKING:
    from crucible.client.api import Api

OPEN_SECONDS = 10.0
GOING_AWAY = frozenset({1001, 1012})
"""Close codes of a server that was told to stop; a crash has none."""

MAX_FRAME = 16 * 1024 * 1024


@dataclass(frozen=True)
class Timing:
    """`patience`: how long a server may be away. `handover`: how long after it was told to stop.

    `stop` ends the following early; it is asked at least every `look` seconds, and while a server is away.
    """

    clock: MonotonicClock
    stop: Callable[[], bool] | None = None
    look: float = 0.5
    poll: float = 0.5
    first_wait: float = 0.1
    longest_wait: float = 5.0
    patience: float = 300.0
    handover: float = 8.0

    @property
    def stopped(self) -> bool:
        return self.stop is not None and self.stop()

    @property
    def silence(self) -> float | None:
        """How long to wait for a frame before looking whether to stop."""
        return None if self.stop is None else self.look


class _Lost(Exception):
    """The connection ended before the job did; `told` when the server said that it goes."""

    def __init__(self, why: str, *, told: bool = False) -> None:
        super().__init__(why)
        self.told = told


class _NoWebSocket(Exception):
    """The server answers, but not with a WebSocket."""


class _Stopped(Exception):
    """Whoever followed wants no more."""


class _Seen:
    """Keeps the cursors and lets each thing through once."""

    def __init__(self, cursors: Cursors) -> None:
        self.cursors = cursors
        self.ended = False

    def new(self, frame: Frame) -> bool:
        match frame:
            case EventFrame():
                return self._new_event(frame.cursor)
            case LogFrame():
                return self._new_text(frame.attempt, frame.cursor)
            case JobFrame():
                self.ended = frame.job.ended
        return True

    def _new_event(self, cursor: int) -> bool:
        if cursor <= self.cursors.after:
            return False
        self.cursors = self.cursors.model_copy(update={"after": cursor})
        return True

    def _new_text(self, attempt: int, cursor: int) -> bool:
        if (attempt, cursor) <= (self.cursors.attempt or 0, self.cursors.offset):
            return False
        self.cursors = self.cursors.model_copy(update={"attempt": attempt, "offset": cursor})
        return True


def follow(api: Api, ref: str, cursors: Cursors, notice: Callable[[str], None], timing: Timing) -> Iterator[Frame]:
    """Frames until the job has ended and its log is out; each event and each piece of log once."""
    seen = _Seen(cursors)
    frames = _socket
    away = _Away(api, notice, timing)
    while True:
        try:
            for frame in frames(api, ref, seen, timing):
                away.back()
                if seen.new(frame):
                    yield frame
            return
        except _Stopped:
            return
        except _NoWebSocket:
            frames = _polling
        except (_Lost, Unreachable, TimedOut) as lost:
            if timing.stopped:
                return
            away.wait(ref, lost)


class _Away:
    """Waiting for a server that went away, and finding it again."""

    def __init__(self, api: Api, notice: Callable[[str], None], timing: Timing) -> None:
        self._api, self._notice, self._timing = api, notice, timing
        self._since: float | None = None
        self._next_wait = timing.first_wait

    def back(self) -> None:
        if self._since is not None:
            self._notice("The server is back.")
        self._since, self._next_wait = None, self._timing.first_wait

    def wait(self, ref: str, lost: Exception) -> None:
        """Return when it is worth another try; raise Unreachable when patience is over."""
        clock = self._timing.clock
        if self._since is None:
            self._since = clock.monotonic()
            self._notice("The server does not answer; the job goes on. Looking for it again …")
        told = isinstance(lost, _Lost) and lost.told
        if told and self._api.find_running is not None:
            self._wait_for_another(ref, self._api.find_running)
            return
        if clock.monotonic() - self._since > self._timing.patience:
            raise unreachable(self._api.transport.endpoint, str(lost))
        clock.sleep(self._next_wait)
        self._next_wait = min(self._next_wait * 2, self._timing.longest_wait)
        self._api.transport.relocate()

    def _wait_for_another(self, ref: str, found: Callable[[], Endpoint | None]) -> None:
        """Somebody stopped our embedded server: do not start it again, but use one that takes its place."""
        clock = self._timing.clock
        end = clock.monotonic() + self._timing.handover
        while clock.monotonic() < end:
            if found() is not None:
                self._api.transport.relocate()
                return
            clock.sleep(self._timing.first_wait)
        raise Unreachable(
            "The server was stopped.",
            why="Jobs go on without it; their news waits for the next server.",
            fix=f"Follow again with `crucible logs -f {short(ref) if is_id(ref) else ref}`: that starts the server.",
        )


# Over a WebSocket


def _socket(api: Api, ref: str, seen: _Seen, timing: Timing) -> Iterator[Frame]:
    with _opened(api, ref, seen.cursors) as connection:
        try:
            while True:
                if (frame := _frame(_received(connection, timing))) is not None:
                    yield frame
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else None
            if code == 1008:
                raise _NoWebSocket(str(closed)) from closed
            if code != 1000:
                raise _Lost(str(closed), told=code in GOING_AWAY) from closed
        if not seen.ended:
            yield from _last_look(api, ref)


def _received(connection: ClientConnection, timing: Timing) -> str | bytes:
    while not timing.stopped:
        try:
            return connection.recv(timeout=timing.silence)
        except TimeoutError:
            continue
    raise _Stopped


def _last_look(api: Api, ref: str) -> Iterator[Frame]:
    """The stream was closed as finished, but no frame said that the job ended."""
    job = api.job(ref)
    if not job.ended:
        raise _Lost("The server closed the stream before the job's end.")
    yield JobFrame(job=job)


@contextmanager
def _opened(api: Api, ref: str, cursors: Cursors) -> Iterator[ClientConnection]:
    endpoint = api.transport.endpoint
    try:
        connection = connect(
            _address(endpoint, ref, cursors),
            additional_headers=auth_headers(endpoint),
            open_timeout=OPEN_SECONDS,
            close_timeout=2,
            max_size=MAX_FRAME,
            proxy=None if is_loopback(endpoint.url) else True,
        )
    except InvalidStatus as refused:
        api.job(ref)  # raises what is wrong with the token or the job, in the server's words
        raise _NoWebSocket(str(refused)) from refused
    except (InvalidHandshake, InvalidURI) as refused:
        raise _NoWebSocket(str(refused)) from refused
    except (OSError, EOFError) as error:
        raise _Lost(str(error)) from error
    with connection:
        yield connection


def _address(endpoint: Endpoint, ref: str, cursors: Cursors) -> str:
    query = cursors.model_dump(exclude_none=True)
    return f"ws{endpoint.url.removeprefix('http')}{path_of(routes.STREAM, job=ref)}?{urlencode(query)}"


def _frame(text: str | bytes) -> Frame | None:
    """The frame in a message; None for one of a kind that only newer servers send."""
    try:
        return _FRAMES.validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return None
        raise _NoWebSocket(str(error)) from error


_FRAMES: TypeAdapter[Frame] = TypeAdapter(AnyFrame)


# By polling


def _polling(api: Api, ref: str, seen: _Seen, timing: Timing) -> Iterator[Frame]:
    while True:
        job = api.job(ref)  # before the log: if it has ended, the log read next is all there is
        for event in api.events(ref, after=seen.cursors.after):
            yield EventFrame(cursor=event.n, event=event)
        complete = yield from _new_text(api, ref, seen)
        yield JobFrame(job=job)
        if (job.ended and complete) or timing.stopped:
            return
        timing.clock.sleep(timing.poll)


def _new_text(api: Api, ref: str, seen: _Seen) -> Generator[Frame, None, bool]:
    """The log from the cursor to its present end, over all attempts; returns whether that is all of it."""
    attempt, offset = seen.cursors.attempt, seen.cursors.offset
    while True:
        page = api.logs(ref, attempt=attempt, offset=offset)
        attempt = page.attempt or None
        if page.data:
            text = page.data.decode("utf-8", errors="replace")
            yield LogFrame(attempt=page.attempt, cursor=page.next, text=text)
            offset = page.next
        elif not page.complete:
            return page.attempts == 0
        elif page.attempts <= page.attempt:
            return True
        else:
            attempt, offset = page.attempt + 1, 0
