from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import client
from pathlib import Path
from typing import Any

import pytest
from tests.client.scripted_server import OK, ScriptedServer

from crucible.wire.http import client as http
from crucible.wire.http.client import (
    BadResponse,
    BaseUrl,
    HttpClient,
    HttpError,
    NotConnected,
    Proxy,
    Request,
    ResponseTimeout,
    ResponseTooLong,
    unix_url,
)

pytestmark = pytest.mark.enable_socket

CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def get(target: str = "/", seconds: float = 5.0) -> Request:
    return Request("GET", target, seconds, seconds)


def http_to(server: ScriptedServer, path: str = "") -> HttpClient:
    return HttpClient(BaseUrl.parse(server.url + path), headers={"Authorization": "Bearer abc"})


def test_requests_share_a_connection_and_carry_the_headers_of_all_and_their_own() -> None:
    with ScriptedServer([OK, OK]) as server, closing(http_to(server, "/below")) as link:
        asked = Request("POST", "/a?b=c", 5.0, 5.0, {"X-Own": "1"}, b"body")
        assert link.send(asked).content == b"ok"
        assert link.send(get("/d")).content == b"ok"
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /below/a?b=c HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer abc\r\n" in server.requests[0]
    assert b"\r\nX-Own: 1\r\n" in server.requests[0]
    assert server.requests[0].endswith(b"\r\n\r\nbody")
    assert b"X-Own" not in server.requests[1]


def test_an_answer_says_its_status_reason_and_headers_and_is_read_once() -> None:
    with ScriptedServer([b"HTTP/1.1 404 Not Found\r\nX-Some: thing\r\nContent-Length: 3\r\n\r\nabc"]) as server:
        answer = http_to(server).send(get())
        assert (answer.status_code, answer.reason, answer.headers.get("x-some")) == (404, "Not Found", "thing")
        assert answer.content == answer.content == b"abc"


def test_a_connection_that_the_server_left_is_not_used_again() -> None:
    with ScriptedServer([OK], [OK]) as server, closing(http_to(server)) as link:
        assert link.send(get()).content == b"ok"
        server_left(link)
        assert link.send(get()).content == b"ok"
    assert server.connections == 2


def server_left(link: HttpClient) -> None:
    """Waits until the kernel knows that the other side hung up."""
    [(_, connection)] = link._idle
    connection.sock.settimeout(5.0)
    assert connection.sock.recv(1, 2) == b""  # MSG_PEEK


def test_a_connection_that_waited_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_SECONDS", 0.0)
    with ScriptedServer([OK], [OK]) as server, closing(http_to(server)) as link:
        assert [link.send(get()).content for _ in range(2)] == [b"ok", b"ok"]
    assert server.connections == 2


@pytest.mark.parametrize(
    "first",
    [CLOSING, b"HTTP/1.0 200 OK\r\n\r\nok"],
    ids=["it says so", "an answer without a length"],
)
def test_a_connection_that_ends_with_its_answer_is_not_kept(first: bytes) -> None:
    with ScriptedServer([first], [OK]) as server, closing(http_to(server)) as link:
        assert [link.send(get()).content for _ in range(2)] == [b"ok", b"ok"]
    assert server.connections == 2


def test_an_answer_closed_before_its_end_takes_its_connection_along() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbeginning"
    with ScriptedServer([long], [OK]) as server, closing(http_to(server)) as link:
        answer = link.send(get())
        assert next(answer.pieces(9)) == b"beginning"
        answer.close()
        answer.close()
        assert link.send(get()).content == b"ok"


def test_a_body_comes_in_pieces_whatever_its_length_says() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with ScriptedServer([OK, chunked, chunked]) as server, closing(http_to(server)) as link:
        for wanted in (b"ok", b"abcde", b"abcde"):
            answer = link.send(get())
            assert b"".join(answer.pieces(2)) == wanted
            answer.close()
    assert server.connections == 1


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
    ids=["shorter than its length", "without its last chunk"],
)
def test_an_answer_that_ends_too_early_is_broken_not_short(cut: bytes) -> None:
    with ScriptedServer([cut], [cut]) as server, closing(http_to(server)) as link:
        with pytest.raises(BadResponse):
            link.send(get()).content  # noqa: B018
        with pytest.raises(BadResponse):
            list(link.send(get()).pieces(1))


@pytest.mark.parametrize("nonsense", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 zwo OK\r\n\r\n"])
def test_what_is_no_answer_is_broken(nonsense: bytes) -> None:
    with ScriptedServer([nonsense]) as server, pytest.raises(BadResponse):
        http_to(server).send(get())


def test_silence_is_late() -> None:
    with ScriptedServer([None]) as server, pytest.raises(ResponseTimeout):
        http_to(server).send(get(seconds=0.05))


def test_an_answer_that_stops_half_way_is_late() -> None:
    with ScriptedServer([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", None], whole=False) as server:
        answer = http_to(server).send(get(seconds=0.2))
        with pytest.raises(HttpError):
            answer.content  # noqa: B018


def test_a_body_that_trickles_in_ends_at_the_deadline_of_the_whole_answer() -> None:
    with ScriptedServer([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", None], whole=False) as server:
        answer = http_to(server).send(get(seconds=5.0))
        with pytest.raises(ResponseTimeout):
            answer.read(seconds=0.0)


def test_an_answer_beyond_the_limit_is_refused_and_its_connection_closed() -> None:
    with ScriptedServer([OK], [OK]) as server, closing(http_to(server)) as link:
        with pytest.raises(ResponseTooLong, match="longer than 1 bytes"):
            link.send(get()).read(limit=1)
        assert link.send(get()).read(limit=2) == b"ok"


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_kept_connection_that_dies_is_replaced_for_what_may_be_sent_twice(
    monkeypatch: pytest.MonkeyPatch, repeatable: bool
) -> None:
    monkeypatch.setattr(http, "_is_closed_by_server", lambda _: False)  # the server hangs up just after the look
    connections = ([OK, b""], [OK]) if repeatable else ([OK, b""],)
    with ScriptedServer(*connections) as server, closing(http_to(server)) as link:
        assert link.send(get()).content == b"ok"
        again = Request("POST", "/", 5.0, 5.0, {}, b"body", repeatable=repeatable)
        if repeatable:
            assert link.send(again).content == b"ok"
        else:
            with pytest.raises(BadResponse):
                link.send(again)
    assert server.connections == len(connections)


def test_an_answer_may_be_waited_for_elsewhere() -> None:
    with ScriptedServer([OK, None]) as server, closing(http_to(server)) as link:
        exchange = link.start(get())
        assert select.select([exchange.socket], [], [], 5.0)[0]
        assert exchange.finish().content == b"ok"
        assert link.has_connection()


def test_nobody_there_is_not_connected() -> None:
    with ScriptedServer() as server:
        url = server.url
    with pytest.raises(NotConnected) as told:
        HttpClient(BaseUrl.parse(url)).send(get())
    assert not told.value.timed_out


def test_a_name_that_is_no_name_is_not_connected() -> None:
    with pytest.raises(NotConnected):
        HttpClient(BaseUrl.parse(f"http://{'x' * 70}.ü/")).send(get())


class AbortedConnection(client.HTTPConnection):
    """The other side takes the head of a request, and nothing more."""

    def send(self, data: Any) -> None:
        if data.startswith(b"x"):
            raise BrokenPipeError
        super().send(data)


def test_a_refusal_that_comes_before_the_whole_body_was_sent_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HTTPConnection", AbortedConnection)
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
    with ScriptedServer([refusal], whole=False) as server:
        answer = http_to(server).send(Request("PUT", "/", 5.0, 5.0, {}, b"x" * 99))
        assert (answer.status_code, answer.content) == (413, b"big")


def test_the_last_connection_may_go_to_another_thread_in_between() -> None:
    class Raced(list[Any]):
        """Has something at a look, and nothing when it is taken."""

        def __bool__(self) -> bool:
            return True

    with ScriptedServer([OK]) as server, closing(http_to(server)) as link:
        link._idle = Raced()
        assert link.send(get()).content == b"ok"


def test_threads_get_connections_of_their_own() -> None:
    answers: list[bytes] = []
    with ScriptedServer([OK], [OK]) as server, closing(http_to(server)) as link:
        first = link.send(get())
        other = threading.Thread(target=lambda: answers.append(link.send(get()).content))
        other.start()
        other.join(5.0)
        assert first.content == b"ok"
    assert answers == [b"ok"]
    assert server.connections == 2


def test_through_a_proxy_plain_requests_name_the_whole_address() -> None:
    with ScriptedServer([OK]) as proxy:
        link = HttpClient(
            BaseUrl.parse("http://crucible.example:8080/below"),
            proxy=Proxy("127.0.0.1", proxy.port, {"Proxy-Authorization": "Basic abc"}),
        )
        assert link.send(get("/a")).content == b"ok"
    assert proxy.requests[0].startswith(b"GET http://crucible.example:8080/below/a HTTP/1.1\r\n")
    assert b"\r\nHost: crucible.example:8080\r\n" in proxy.requests[0]
    assert b"\r\nProxy-Authorization: Basic abc\r\n" in proxy.requests[0]


def test_through_a_proxy_encrypted_requests_ask_for_a_tunnel_first() -> None:
    with ScriptedServer([b"HTTP/1.1 407 Who are you\r\n\r\n"]) as proxy:
        link = HttpClient(
            BaseUrl.parse("https://crucible.example"),
            tls=ssl.create_default_context(),
            proxy=Proxy("127.0.0.1", proxy.port, {"Proxy-Authorization": "Basic abc"}),
        )
        with pytest.raises(NotConnected, match="407"):
            link.send(get("/secret"))
    assert proxy.requests[0].startswith(b"CONNECT crucible.example:443 HTTP/1.")
    assert b"\r\nProxy-Authorization: Basic abc\r\n" in proxy.requests[0]
    assert b"secret" not in proxy.requests[0]


def test_at_a_unix_socket_requests_share_a_connection(tmp_path: Path) -> None:
    folder = tmp_path / "with a space, ü and 100%"
    folder.mkdir(mode=0o700)
    with ScriptedServer([OK, OK], path=folder / "s") as server:
        url = unix_url(folder / "s")
        with closing(HttpClient(BaseUrl.parse(url), headers={"Authorization": "Bearer abc"})) as link:
            assert link.send(get("/a?b=c")).content == b"ok"
            assert link.send(get("/d")).content == b"ok"
    assert (server.connections, len(server.requests)) == (1, 2)
    assert server.requests[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: localhost\r\n")
    assert url.startswith("unix:/")
    assert url.isascii()


@pytest.mark.parametrize("mode", [0o770, 0o711, 0o1777])
def test_a_unix_socket_where_others_could_have_placed_it_is_not_called(tmp_path: Path, mode: int) -> None:
    with listening(tmp_path / "s") as server:
        tmp_path.chmod(mode)
        with pytest.raises(NotConnected, match=r"not in a private folder: .* is open to other users"):
            HttpClient(BaseUrl.parse(unix_url(tmp_path / "s"))).send(get())
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_unix_socket_in_another_users_folder_is_not_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    with listening(tmp_path / "s") as server:
        monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.raises(NotConnected, match="belongs to another user"):
            HttpClient(BaseUrl.parse(unix_url(tmp_path / "s"))).send(get())
        with pytest.raises(BlockingIOError):
            server.accept()


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.setblocking(False)
        yield server


def test_a_unix_socket_that_nobody_serves_is_not_connected(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for path in (tmp_path / "s", tmp_path / "away" / "s", tmp_path / ("long" * 40)):
        with pytest.raises(NotConnected):
            HttpClient(BaseUrl.parse(unix_url(path))).send(get())


@pytest.mark.parametrize("url", ["unix:", "unix:relative/s", "unix://host/s", "unix:/with space"])
def test_what_is_no_address_of_a_unix_socket(url: str) -> None:
    with pytest.raises(ValueError, match="It "):
        BaseUrl.parse(url)
