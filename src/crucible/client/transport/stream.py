"""Follows one job: frames over a WebSocket, from cursors on, across lost connections and restarted servers.

Without a WebSocket (behind some proxies) the same frames come from polling.
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
"""Close codes of a server that was asked to stop; a crash has none."""

MAX_FRAME = 16 * 1024 * 1024


@dataclass(frozen=True)
class Timing:
    """Waits in seconds. `patience`: for a lost server; `replacement_wait`: for the successor of a stopped one.

    `stop` ends the stream early; it is called at least every `check_seconds`, and while the server is away.
    """

    clock: MonotonicClock
    stop: Callable[[], bool] | None = None
    check_seconds: float = 0.5
    poll: float = 0.5
    first_wait: float = 0.1
    longest_wait: float = 5.0
    patience: float = 300.0
    replacement_wait: float = 8.0

    @property
    def stopped(self) -> bool:
        return self.stop is not None and self.stop()

    @property
    def receive_timeout(self) -> float | None:
        """How long to wait for a frame before `stop` is checked."""
        return None if self.stop is None else self.check_seconds


class _Lost(Exception):
    """The connection ended before the job did; `announced` if the server said that it is stopping."""

    def __init__(self, why: str, *, announced: bool = False) -> None:
        super().__init__(why)
        self.announced = announced


class _NoWebSocket(Exception):
    """The server answers, but not with a WebSocket."""


class _Stopped(Exception):
    """The caller's `stop` returned true."""


class _Progress:
    """Keeps the cursors, so that each event and each piece of log is yielded once."""

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
    """Yield frames until the job has ended and its log is complete; each event and each piece of log once."""
    progress = _Progress(cursors)
    frames = _frames_from_socket
    reconnect = _Reconnect(api, notice, timing)
    while True:
        try:
            for frame in frames(api, ref, progress, timing):
                reconnect.succeeded()
                if progress.new(frame):
                    yield frame
            return
        except _Stopped:
            return
        except _NoWebSocket:
            frames = _frames_from_polling
        except (_Lost, Unreachable, TimedOut) as lost:
            if timing.stopped:
                return
            reconnect.wait(ref, lost)


class _Reconnect:
    """Waits for a server that went away, and finds it again."""

    def __init__(self, api: Api, notice: Callable[[str], None], timing: Timing) -> None:
        self._api, self._notice, self._timing = api, notice, timing
        self._since: float | None = None
        self._next_wait = timing.first_wait

    def succeeded(self) -> None:
        if self._since is not None:
            self._notice("The server is back.")
        self._since, self._next_wait = None, self._timing.first_wait

    def wait(self, ref: str, lost: Exception) -> None:
        """Return when the next attempt is due. Raises Unreachable when patience is over."""
        clock = self._timing.clock
        if self._since is None:
            self._since = clock.monotonic()
            self._notice("The server does not answer; the job goes on. Reconnecting …")
        announced = isinstance(lost, _Lost) and lost.announced
        if announced and self._api.find_running is not None:
            self._wait_for_replacement(ref, self._api.find_running)
            return
        if clock.monotonic() - self._since > self._timing.patience:
            raise unreachable(self._api.transport.endpoint, str(lost))
        clock.sleep(self._next_wait)
        self._next_wait = min(self._next_wait * 2, self._timing.longest_wait)
        self._api.transport.relocate()

    def _wait_for_replacement(self, ref: str, find_running: Callable[[], Endpoint | None]) -> None:
        """Use the successor of an embedded server that was stopped on purpose; start none."""
        clock = self._timing.clock
        end = clock.monotonic() + self._timing.replacement_wait
        while clock.monotonic() < end:
            if find_running() is not None:
                self._api.transport.relocate()
                return
            clock.sleep(self._timing.first_wait)
        raise Unreachable(
            "The server was stopped.",
            why="Jobs go on without it; their updates arrive with the next server.",
            fix=f"Follow again with `crucible logs -f {short(ref) if is_id(ref) else ref}`: this starts the server.",
        )


# Over a WebSocket


def _frames_from_socket(api: Api, ref: str, progress: _Progress, timing: Timing) -> Iterator[Frame]:
    with _open_socket(api, ref, progress.cursors) as connection:
        try:
            while True:
                if (frame := _frame(_receive(connection, timing))) is not None:
                    yield frame
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else None
            if code == 1008:
                raise _NoWebSocket(str(closed)) from closed
            if code != 1000:
                raise _Lost(str(closed), announced=code in GOING_AWAY) from closed
        if not progress.ended:
            yield from _final_frame(api, ref)


def _receive(connection: ClientConnection, timing: Timing) -> str | bytes:
    while not timing.stopped:
        try:
            return connection.recv(timeout=timing.receive_timeout)
        except TimeoutError:
            continue
    raise _Stopped


def _final_frame(api: Api, ref: str) -> Iterator[Frame]:
    """Yield the job's last state, for a stream that was closed as finished before a frame said so."""
    job = api.job(ref)
    if not job.ended:
        raise _Lost("The server closed the stream before the job's end.")
    yield JobFrame(job=job)


@contextmanager
def _open_socket(api: Api, ref: str, cursors: Cursors) -> Iterator[ClientConnection]:
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
        api.job(ref)  # raises the server's own error, if the token or the job is the cause
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
    """Return the frame of a message; None for a kind that only newer servers send."""
    try:
        return _FRAMES.validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return None
        raise _NoWebSocket(str(error)) from error


_FRAMES: TypeAdapter[Frame] = TypeAdapter(AnyFrame)


# By polling


def _frames_from_polling(api: Api, ref: str, progress: _Progress, timing: Timing) -> Iterator[Frame]:
    while True:
        job = api.job(ref)  # before the log: if the job has ended, the log that is read next is complete
        for event in api.events(ref, after=progress.cursors.after):
            yield EventFrame(cursor=event.n, event=event)
        complete = yield from _new_log(api, ref, progress)
        yield JobFrame(job=job)
        if (job.ended and complete) or timing.stopped:
            return
        timing.clock.sleep(timing.poll)


def _new_log(api: Api, ref: str, progress: _Progress) -> Generator[Frame, None, bool]:
    """Yield the log from the cursor to its current end, over all attempts; return whether it is complete."""
    attempt, offset = progress.cursors.attempt, progress.cursors.offset
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
