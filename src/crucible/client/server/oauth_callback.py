"""Login in the browser (RFC 8252): a listener on this computer that receives the authorization code.

The code is useless without the verifier, which never leaves this process (PKCE).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlencode, urlsplit

from crucible.client.api import routes
from crucible.core.errors import TimedOut
from crucible.core.people.openid import make_challenge

HOST = "127.0.0.1"
REQUEST_SECONDS = 5.0
"""How long a connection may take to send its request; connections are served one at a time."""
DONE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Crucible</title>
<p>The command is logged in. You can close this page.</p></html>
"""


class BrowserLogin:
    """Listens from when it is created; `code` waits for the browser."""

    def __init__(self, server: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._now = now
        self._state = secrets.token_urlsafe(24)
        self.verifier = secrets.token_urlsafe(48)
        self._listener = _Listener((HOST, 0), _Handler)
        self._listener.state = self._state

    def __enter__(self) -> BrowserLogin:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.server_close()

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    @property
    def url(self) -> str:
        """The page to open in the browser."""
        query = {"port": self.port, "challenge": make_challenge(self.verifier), "state": self._state}
        return f"{self._server}{routes.LOGIN_OPENID.path}?{urlencode(query)}"

    def code(self, seconds: float) -> str:
        """Wait for the browser and return its code. Raises TimedOut."""
        until = self._now() + seconds
        while self._listener.code is None:
            left = until - self._now()
            if left <= 0:
                raise TimedOut(
                    f"Nobody logged in within {seconds:g} s.",
                    why="The browser did not return, or it shows why.",
                    fix="Run `crucible login` again, or use a token: crucible login URL --token-stdin < token.txt",
                )
            self._listener.timeout = min(left, 0.5)
            self._listener.handle_request()
        return self._listener.code


class _Listener(HTTPServer):
    state = ""
    code: str | None = None

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that break off."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: _Listener

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        code, state = query.get("code", [""])[0], query.get("state", [""])[0]
        is_our_host = self.headers.get("Host", "") == f"{HOST}:{self.server.server_address[1]}"
        if not is_our_host or not code or not secrets.compare_digest(state.encode(), self.server.state.encode()):
            self._respond(404, b"")
            return
        self.server.code = code
        self._respond(200, DONE)

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the request's path contains the code."""
