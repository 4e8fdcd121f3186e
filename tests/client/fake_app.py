"""Stands in for `python -m crucible.app serve`: the discovery part of it, with ways to fail.

The mode is in $FAKE_MODE: ok, error (tells one and ends), silent (ends without a word), hang (takes the lock,
never ready), killed-once (killed between lock and ready, the first time).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HOME = Path(sys.argv[sys.argv.index("--home") + 1])
NONCE = sys.argv[sys.argv.index("--nonce") + 1]
VERSION = os.environ.get("FAKE_VERSION", "0.1.0")
MODE = os.environ.get("FAKE_MODE", "ok")


class Handler(BaseHTTPRequestHandler):
    def _answer(self, status: int) -> None:
        body = json.dumps({"ok": True, "ready": True, "nonce": NONCE, "version": VERSION}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        if os.environ.get("FAKE_DEAF"):
            self._answer(500)
            return
        self._answer(202)
        (HOME / "server.json").unlink()
        os._exit(0)

    def log_message(self, format: str, *arguments: object) -> None:
        return None


def start_time() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def main() -> int:
    with open(HOME / "starts", "a") as starts:
        starts.write(f"{os.getpid()}\n")
    if MODE == "error":
        told = {
            "code": "port_in_use",
            "what": "Port 4242 is taken.",
            "why": "By another.",
            "fix": "Take another.",
        }
        print("some line of a log\n" + json.dumps({"error": told}), file=sys.stderr)
        return 1
    if MODE == "silent":
        print("a last word", file=sys.stderr)
        return 3
    lock = os.open(HOME / "server.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(json.dumps({"error": {"code": "conflict", "what": "Another server runs.", "why": "", "fix": ""}}))
        return 5
    if MODE == "killed-once" and len((HOME / "starts").read_text().splitlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "hang":
        print("thinking about it", file=sys.stderr, flush=True)
        time.sleep(60)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    (HOME / "token").write_text("t0ken")
    found = {
        "url": f"http://127.0.0.1:{server.server_port}",
        "pid": os.getpid(),
        "start_time": start_time(),
        "version": VERSION,
        "nonce": NONCE,
    }
    if "FAKE_FOLDER" in os.environ:
        found["folder"] = f"{HOME.stat().st_dev}:{HOME.stat().st_ino}"
    (HOME / "server.json.new").write_text(json.dumps(found))
    os.replace(HOME / "server.json.new", HOME / "server.json")
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
