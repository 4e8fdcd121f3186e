"""A listener that serves files by their path, as the agents' listener serves the agent file, and notes requests."""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crucible.backends.bootstrap import AGENT_ROUTES, AgentFile


class Listener(http.server.BaseHTTPRequestHandler):
    """Answer GET from the server's table of bodies; any other path is 404."""

    server: Any

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Host"]))
        body = self.server.bodies.get(self.path)
        status = 404 if body is None else 200
        if self.server.failures:
            status = self.server.failures.pop()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body or b"") + self.server.missing))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *args: object) -> None:
        pass


class UnixServer(socketserver.ThreadingUnixStreamServer):
    def get_request(self) -> tuple[socket.socket, str]:  # type: ignore[override]
        return super().get_request()[0], "unix"  # BaseHTTPRequestHandler expects an address


@contextmanager
def serving(server: Any, bodies: Mapping[str, bytes], missing: int = 0) -> Iterator[Any]:
    """Serve the bodies by path. `missing`: so many bytes more are announced than are sent."""
    server.bodies, server.missing, server.asked, server.failures = bodies, missing, [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def listening(bodies: Mapping[str, bytes], missing: int = 0) -> Iterator[Any]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener), bodies, missing) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server


def agent_route(agent: AgentFile) -> str:
    return f"{AGENT_ROUTES}/{agent.name}"
