"""The fault proxy itself: what each fault does to both sides, and that nothing else happens."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.faults.proxy import Fault, FaultProxy, Rule, fault_proxy, storm
from tests.harness import until

LONG = 30.0
LARGE = 3_000_000


class Upstream(ThreadingHTTPServer):
    """Answers with what it was sent; remembers every request that came whole."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Lines that are cut are what is tested."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Upstream

    def handle_any(self) -> None:
        said = self.headers.get("Content-Length")
        if not said and self.command == "POST":
            return  # this server takes the end of the stream for the end of the head
        body = self.rfile.read(int(said or 0))
        if len(body) < int(said or 0):
            return
        self.server.got.append((self.command, self.path, body))
        self.send_response_only(204 if self.path == "/empty" else 200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" or self.path == "/empty" else body)

    do_GET = do_PUT = do_POST = do_HEAD = handle_any

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def line(upstream: Upstream) -> Iterator[FaultProxy]:
    with fault_proxy(upstream.url) as line:
        yield line


@contextmanager
def connected(line: FaultProxy, timeout: float = LONG) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", line.port, timeout=timeout)
    try:
        yield connection
    finally:
        connection.close()


def ask(
    line: FaultProxy, method: str = "POST", path: str = "/", body: bytes = b"hello", timeout: float = LONG
) -> bytes:
    """The answer's body, on a connection of its own. Raises when it breaks off."""
    with connected(line, timeout) as connection:
        connection.request(method, path, body)
        return connection.getresponse().read()


def ask_on(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/")
    return connection.getresponse().read()


def raw_answer(line: FaultProxy, path: str) -> bytes:
    """All that comes until the connection ends; http.client takes half a head for a whole one."""
    with socket.create_connection(("127.0.0.1", line.port), LONG) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


BROKEN = (OSError, http.client.HTTPException)


def test_without_faults_all_arrives(line: FaultProxy, upstream: Upstream) -> None:
    large = bytes(range(256)) * (LARGE // 256)
    with connected(line) as connection:
        for method, path, body in (
            ("GET", "/a?b=c", b""),
            ("PUT", "/large", large),
            ("POST", "/chunked", large),
            ("POST", "/empty", b""),
            ("HEAD", "/head", b"12345"),
            ("POST", "/", b"x"),
        ):
            connection.request(method, path, body)
            assert connection.getresponse().read() == (b"" if method == "HEAD" else body)
    assert [path for _, path, _ in upstream.got] == ["/a?b=c", "/large", "/chunked", "/empty", "/head", "/"]
    assert line.counts() == {"connections": 1, "requests": 6, "answers": 6}


def test_a_request_that_is_cut_never_arrives_whole(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(Rule(Fault.CUT_REQUEST))
    for size in (1, 2, 1000, LARGE):
        with pytest.raises(BROKEN):
            ask(line, body=b"x" * size)
    assert upstream.got == []
    assert line.counts()["cut_request"] == 4


def test_a_dropped_answer_was_given(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(Rule(Fault.DROP_ANSWER, match="POST /create$"))
    with pytest.raises(BROKEN):
        ask(line, path="/create")
    assert ask(line, path="/created") == b"hello"
    assert [path for _, path, _ in upstream.got] == ["/create", "/created"]
    assert line.counts() == {"connections": 2, "requests": 2, "answers": 2, "drop_answer": 1, "drop_answer POST": 1}


@pytest.mark.parametrize("fault", [Fault.CUT_ANSWER, Fault.TRUNCATE])
@pytest.mark.parametrize("path", ["/", "/chunked", "/empty"])
def test_an_answer_never_arrives_whole(line: FaultProxy, upstream: Upstream, fault: Fault, path: str) -> None:
    whole = raw_answer(line, path)
    line.rules(Rule(fault))
    for _ in range(5):
        part = raw_answer(line, path)
        assert len(part) < len(whole)
        assert whole.startswith(part)
    assert len(upstream.got) == 6


def test_of_a_truncated_answer_the_head_arrives(line: FaultProxy) -> None:
    line.rules(Rule(Fault.TRUNCATE))
    with connected(line) as connection:
        connection.request("POST", "/", b"x" * LARGE)
        answer = connection.getresponse()
        assert (answer.status, answer.length) == (200, LARGE)
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


def test_the_proxy_says_later_itself(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(*storm(2.0, seconds=7))
    with connected(line) as connection:
        connection.request("POST", "/", b"x" * LARGE)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
        answer.read()
        line.rules()
        connection.request("POST", "/", b"and on")
        assert connection.getresponse().read() == b"and on"
    assert len(upstream.got) == 1


def test_a_reset_and_a_refusal_deliver_nothing(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(Rule(Fault.RESET, times=1))
    with pytest.raises(ConnectionError):
        ask(line)
    assert ask(line, body=b"1") == b"1"
    with line.refusing(), pytest.raises(ConnectionRefusedError):
        ask(line)
    assert ask(line, body=b"2") == b"2"
    assert [body for _, _, body in upstream.got] == [b"1", b"2"]


def test_a_black_hole_is_left_at_the_deadline(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(Rule(Fault.BLACK_HOLE, times=1))
    with pytest.raises(TimeoutError):
        ask(line, timeout=0.3)
    assert upstream.got == []
    assert ask(line) == b"hello"


def test_a_duplicate_arrives_twice_and_is_answered_once(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(Rule(Fault.DUPLICATE, times=1))
    assert ask(line, body=b"x" * LARGE) == b"x" * LARGE
    until(lambda: line.counts()["answers"] == 2, LONG, "the second answer")
    assert [body for _, _, body in upstream.got] == [b"x" * LARGE] * 2


def test_a_delay_comes_before_everything_else(line: FaultProxy, upstream: Upstream) -> None:
    line.rules(Rule(Fault.DELAY, seconds=0.5), Rule(Fault.DROP_ANSWER))
    with pytest.raises(BROKEN):
        ask(line)
    assert len(upstream.got) == 1
    assert line.counts()["delay"] == 1


def test_a_throttled_line_takes_its_time(line: FaultProxy) -> None:
    line.throttle(1_000_000)
    began = time.monotonic()
    ask(line, body=b"x" * 300_000)
    assert time.monotonic() - began > 0.5, "300 kB there and back"


def test_in_a_partition_nothing_moves_and_nothing_is_lost(line: FaultProxy, upstream: Upstream) -> None:
    with connected(line) as connection, ThreadPoolExecutor() as pool:
        connection.request("POST", "/", b"before")
        connection.getresponse().read()
        with line.parted():
            connection.request("POST", "/", b"open")
            fresh = pool.submit(ask, line, body=b"fresh")
            with pytest.raises(TimeoutError):
                ask(line, body=b"impatient", timeout=0.3)
            assert len(upstream.got) == 1
        assert connection.getresponse().read() == b"open"
        assert fresh.result(LONG) == b"fresh"
    assert {b"before", b"open", b"fresh"} <= {body for _, _, body in upstream.got}


def test_after_so_many_bytes_all_is_cut(line: FaultProxy) -> None:
    line.cut_after(LARGE // 2)
    with pytest.raises(BROKEN):
        ask(line, body=b"x" * LARGE)
    with pytest.raises(ConnectionRefusedError):
        ask(line)
    assert line.counts()["cut_after"] == 1


def test_open_connections_can_be_cut(line: FaultProxy) -> None:
    with connected(line) as connection:
        ask_on(connection)
        line.cut()
        with pytest.raises(ConnectionError):
            ask_on(connection)
    assert ask(line) == b"hello"


def test_the_target_may_become_another(upstream: Upstream) -> None:
    with fault_proxy("http://127.0.0.1:1/base") as line:
        with pytest.raises(BROKEN):
            ask(line)
        line.aim(upstream.url)
        assert ask(line) == b"hello"
        assert line.url == f"http://127.0.0.1:{line.port}/base"


def test_the_same_seed_brings_the_same_luck(upstream: Upstream) -> None:
    def lucky(seed: int, between: int) -> list[bool]:
        """Which of twenty creates are answered, whatever else is asked meanwhile."""
        with fault_proxy(upstream.url, Rule(Fault.RESET, 0.3, "POST"), Rule(Fault.BUSY, 0.5), seed=seed) as line:
            found = []
            for _ in range(20):
                for _ in range(between):
                    ask(line, "GET")
                try:
                    found.append(bool(ask(line)))
                except ConnectionError:
                    found.append(False)
        return found

    first = lucky(1, 0)
    assert first == lucky(1, 2)
    assert first != lucky(2, 0)
    assert 0 < sum(first) < 20
