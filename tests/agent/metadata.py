"""A metadata service for tests: a small real server on the loopback address."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from crucible.agent.host.interruption import MetadataUrl


class Metadata:
    """Answers like a provider: 404 until a notice is set. `drip` sends a body that never ends."""

    def __init__(self) -> None:
        self.status, self.body = 404, b"{}"
        self.drip = False
        self.asked = 0
        self._closing = threading.Event()
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                metadata.asked += 1
                self.send_response(metadata.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                if not metadata.drip:
                    self.wfile.write(metadata.body)
                while metadata.drip and not metadata._closing.wait(0.02):
                    self.wfile.write(b" ")

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Do not report clients that disconnect."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/m/interruption"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def address(self) -> MetadataUrl:
        return MetadataUrl.parse(self.url)

    def announce(self, seconds: object) -> None:
        self.body = json.dumps({"action": "terminate", "time": "2030-01-01T00:00:00Z", "seconds": seconds}).encode()
        self.status = 200

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
