"""Sessions from the client's side, with a real socket to a server that a test plays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from crucible.client.sdk import port_forward
from crucible.client.sdk.exec import execute
from crucible.client.sdk.port_forward import PortForward, ports_of, require_port
from crucible.client.transport.http import Endpoint, Transport
from crucible.client.transport.sessions import SessionOver, make_command, open_session
from crucible.core.errors import BadInput, Conflict, CrucibleError, Forbidden, TimedOut, Unreachable
from crucible.core.secret import Secret
from crucible.wire.http import sessions as s

pytestmark = pytest.mark.enable_socket

Play = Callable[[ServerConnection], None]


class FakeSessionServer:
    """A server that plays one part to whoever opens a session."""

    def __init__(self) -> None:
        self.play: Play = lambda socket: None
        self.refusal: Response | None = None
        self.asked: list[tuple[str, str | None]] = []
        self.opened: list[s.Opening] = []
        self._server = serve(self._came, "127.0.0.1", 0, process_request=self._request, close_timeout=1)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        port = self._server.socket.getsockname()[1]
        self.transport = Transport(Endpoint(f"http://127.0.0.1:{port}", Secret("a-token")))

    def close(self) -> None:
        self.transport.close()
        self._server.shutdown()

    def _request(self, socket: ServerConnection, request: Request) -> Response | None:
        self.asked.append((request.path, request.headers.get("Authorization")))
        return self.refusal

    def _came(self, socket: ServerConnection) -> None:
        try:
            self.opened.append(s.read_opening(frame(socket)))
            self.play(socket)
        except ConnectionClosed:
            return


@pytest.fixture
def session_server() -> Iterator[FakeSessionServer]:
    session_server = FakeSessionServer()
    yield session_server
    session_server.close()


def frame(socket: ServerConnection) -> bytes:
    found = socket.recv(timeout=10)
    assert isinstance(found, bytes)
    return found


def echo(socket: ServerConnection) -> None:
    """Gives back what comes, with credit, until its end."""
    socket.send(s.ready_frame())
    while True:
        found = frame(socket)
        kind = s.frame_kind(found, s.FROM_CLIENT)
        if kind is s.FrameKind.DATA:
            socket.send(found)
            socket.send(s.credit_frame(len(found) - 1))
        elif kind is s.FrameKind.END:
            socket.send(s.end_frame())
            socket.send(s.over_frame(s.Over(code=0)))
            return


def test_a_command_to_its_end(session_server: FakeSessionServer) -> None:
    def play(socket: ServerConnection) -> None:
        socket.send(s.ready_frame())
        for said in (
            s.data_frame(b"out\xff"),
            s.data_frame(b"err", s.FrameKind.ERROR_DATA),
            s.data_frame(b"more"),
            s.over_frame(s.Over(signal=15)),
        ):
            socket.send(said)

    session_server.play = play
    done = execute(session_server.transport, "job-1/x", ["ls", "-l"])
    assert (done.code, done.stdout, done.stderr, done.ok) == (143, b"out\xffmore", b"err", False)
    assert done.text == "out�more"
    assert session_server.opened == [s.Command(("ls", "-l"))]
    assert session_server.asked == [("/api/v1/jobs/job-1%2Fx/session", "Bearer a-token")]


def test_much_input_waits_for_credit(session_server: FakeSessionServer) -> None:
    session_server.play = echo
    content = bytes(range(256)) * 4096
    assert execute(session_server.transport, "job", ["cat"], input=content).stdout == content


def test_without_credit_no_more_than_a_window_is_sent(session_server: FakeSessionServer) -> None:
    came = threading.Event()

    def play(socket: ServerConnection) -> None:
        seen = 0
        while seen < s.WINDOW:
            seen += len(frame(socket)) - 1
        came.set()
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.2)
        socket.send(s.over_frame(s.Over(code=0)))

    session_server.play = play
    assert execute(session_server.transport, "job", ["cat"], input=b"x" * 2 * s.WINDOW).code == 0
    assert came.is_set()


def test_what_is_passed_on_is_credited(session_server: FakeSessionServer) -> None:
    given: list[int] = []

    def play(socket: ServerConnection) -> None:
        for _ in range(s.WINDOW // s.CHUNK):
            socket.send(s.data_frame(b"x" * s.CHUNK))
        while sum(given) < s.WINDOW:
            found = frame(socket)
            if s.frame_kind(found, s.FROM_CLIENT) is s.FrameKind.CREDIT:
                given.append(s.read_credit(found))
        socket.send(s.over_frame(s.Over(code=0)))

    session_server.play = play
    execute(session_server.transport, "job", ["yes"])
    assert sum(given) == s.WINDOW


def test_a_refusal_is_raised_in_the_servers_words(session_server: FakeSessionServer) -> None:
    body = b'{"code": "forbidden", "detail": "You may not write.", "fix": "Ask.", "status": 403}'
    headers = Headers({"Content-Type": "application/problem+json", "Content-Length": str(len(body))})
    session_server.refusal = Response(HTTPStatus.FORBIDDEN, "Forbidden", headers, body)
    with pytest.raises(Forbidden, match="may not write") as refused:
        execute(session_server.transport, "job", ["true"])
    assert refused.value.fix == "Ask."


def test_a_refusal_that_is_no_problem(session_server: FakeSessionServer) -> None:
    session_server.refusal = Response(HTTPStatus.BAD_GATEWAY, "Bad Gateway", Headers({"Content-Length": "4"}), b"oops")
    with pytest.raises(Unreachable, match="502"):
        execute(session_server.transport, "job", ["true"])


def test_a_problem_at_the_end_is_raised(session_server: FakeSessionServer) -> None:
    problem = s.Problem("conflict", 409, "It does not run.", "Why.", "Fix.")
    session_server.play = lambda socket: socket.send(s.over_frame(s.Over(problem=problem)))
    with pytest.raises(Conflict, match="does not run") as refused:
        execute(session_server.transport, "job", ["true"])
    assert (refused.value.why, refused.value.fix) == ("Why.", "Fix.")


def test_a_server_that_goes(session_server: FakeSessionServer) -> None:
    session_server.play = lambda socket: socket.send(s.ready_frame())
    with pytest.raises(Unreachable, match="was disconnected"):
        execute(session_server.transport, "job", ["true"])


@pytest.mark.parametrize("said", [b"", b"?", s.open_frame(s.Ports()), b"V{", s.credit_frame(7)])
def test_a_server_that_talks_nonsense(session_server: FakeSessionServer, said: bytes) -> None:
    def play(socket: ServerConnection) -> None:
        socket.send(said)
        socket.recv(timeout=5)

    session_server.play = play
    with pytest.raises(Unreachable, match="invalid frame"):
        execute(session_server.transport, "job", ["true"])


def test_nobody_there() -> None:
    with pytest.raises(Unreachable):
        execute(Transport(Endpoint("http://127.0.0.1:1")), "job", ["true"])


def test_a_command_that_takes_too_long_is_ended(session_server: FakeSessionServer) -> None:
    gone = threading.Event()

    def play(socket: ServerConnection) -> None:
        try:
            while True:
                socket.recv(timeout=10)
        except ConnectionClosed:
            gone.set()

    session_server.play = play
    with pytest.raises(TimedOut, match=r"0\.1 seconds"):
        execute(session_server.transport, "job", ["sleep", "9"], timeout=0.1)
    assert gone.wait(10)


@pytest.mark.parametrize("command", ["ls -l", [], [1], None])
def test_what_is_no_command(session_server: FakeSessionServer, command: object) -> None:
    with pytest.raises(BadInput):
        execute(session_server.transport, "job", command)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [("",), ("a\0b",), ("x" * 40_000,), ("x",) * 2000])
def test_commands_that_no_session_takes(words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="cannot be run"):
        make_command(words)


def test_after_its_end_nothing_is_sent(session_server: FakeSessionServer) -> None:
    session_server.play = lambda socket: socket.send(s.over_frame(s.Over(code=0)))
    with open_session(session_server.transport, "job", s.Command(("true",))) as session:
        assert list(session.frames()) == []
        for send in (lambda: session.write(b"x"), session.end_input, lambda: session.resize(s.Size())):
            with pytest.raises(SessionOver):
                send()


# Ports


def test_the_ports_of_a_job(session_server: FakeSessionServer) -> None:
    session_server.play = lambda socket: socket.send(s.over_frame(s.Over(code=0, ports=(80, 8888))))
    assert ports_of(session_server.transport, "job") == (80, 8888)
    assert session_server.opened == [s.Ports()]


def test_a_port_that_is_not_among_them() -> None:
    require_port((80, 8888), 80)
    with pytest.raises(Conflict, match="port 81") as refused:
        require_port((80, 8888), 81)
    assert (refused.value.why, refused.value.data) == ("Ports it listens on: 80, 8888.", {"ports": [80, 8888]})


def test_each_connection_is_a_session(session_server: FakeSessionServer) -> None:
    session_server.play = echo
    with PortForward(session_server.transport, "job", 8888, 0) as forward:
        for content in (b"one", b"x" * 1_000_000):
            with socket.create_connection(("127.0.0.1", forward.local), 10) as connection:
                threading.Thread(target=_say, args=(connection, content)).start()
                received = b""
                while part := connection.recv(65536):
                    received += part
            assert received == content
    assert session_server.opened == [s.Connection(8888)] * 2


def _say(connection: socket.socket, content: bytes) -> None:
    connection.sendall(content)
    connection.shutdown(socket.SHUT_WR)


def test_a_refused_connection_is_told_and_closed(session_server: FakeSessionServer) -> None:
    problem = s.Problem("conflict", 409, "No process of the job listens on port 8888.")
    session_server.play = lambda socket: socket.send(s.over_frame(s.Over(problem=problem)))
    told: list[CrucibleError] = []
    with (
        PortForward(session_server.transport, "job", 8888, 0, told.append) as forward,
        socket.create_connection(("127.0.0.1", forward.local), 10) as connection,
    ):
        assert connection.recv(10) == b""
    assert [error.what for error in told] == [problem.what]


def test_one_who_goes_ends_his_session(session_server: FakeSessionServer) -> None:
    gone = threading.Event()

    def play(socket: ServerConnection) -> None:
        socket.send(s.ready_frame())
        socket.send(s.data_frame(b"hello"))
        try:
            while s.frame_kind(frame(socket), s.FROM_CLIENT) is not s.FrameKind.END:
                pass
        finally:
            gone.set()

    session_server.play = play
    with PortForward(session_server.transport, "job", 8888, 0) as forward:
        with socket.create_connection(("127.0.0.1", forward.local), 10) as connection:
            assert connection.recv(10) == b"hello"
        assert gone.wait(10)


def test_closing_ends_what_is_open(session_server: FakeSessionServer) -> None:
    session_server.play = echo
    forward = PortForward(session_server.transport, "job", 8888, 0)
    with socket.create_connection(("127.0.0.1", forward.local), 10) as connection:
        connection.sendall(b"a")
        assert connection.recv(1) == b"a"
        forward.close()
        assert connection.recv(1) == b""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", forward.local), 1)


def test_too_many_at_once_are_turned_away(session_server: FakeSessionServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_forward, "MAX_CONNECTIONS", 1)
    session_server.play = echo
    told: list[CrucibleError] = []
    with (
        PortForward(session_server.transport, "job", 8888, 0, told.append) as forward,
        socket.create_connection(("127.0.0.1", forward.local), 10) as first,
    ):
        first.sendall(b"a")
        assert first.recv(1) == b"a"
        with socket.create_connection(("127.0.0.1", forward.local), 10) as second:
            assert second.recv(1) == b""
    assert "More than 1" in told[0].what


def test_a_port_that_is_taken(session_server: FakeSessionServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Conflict, match=str(port)) as refused:
            PortForward(session_server.transport, "job", port)
    assert "8888:0" in refused.value.fix
    with pytest.raises(BadInput):
        PortForward(session_server.transport, "job", 1, 70_000)


def test_it_says_where_it_is(session_server: FakeSessionServer) -> None:
    with PortForward(session_server.transport, "job", 8888, 0) as forward:
        assert forward.url == f"http://127.0.0.1:{forward.local}"
