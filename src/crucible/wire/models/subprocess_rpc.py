"""Call `crucible.inside.describe` in a subprocess of a Python, with a timeout and bounded output."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_OUTPUT = 1024 * 1024
MAX_STDERR = 16 * 1024
_CHUNK = 64 * 1024
_TURN = 0.2
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL")
"""The host's variables that jobs get too: a plugin runs as in a job, and sees no secrets of the shell."""


class RpcError(Exception):
    """The process gave no response; the message says why, `stderr` is the end of its standard error."""

    def __init__(self, text: str, errors: str = "") -> None:
        super().__init__(text)
        self.stderr = errors


@dataclass(frozen=True)
class SubprocessRpc:
    """Calls into a Python. `shim` is a folder that provides `crucible` to it; the process also runs there.

    Once `cancelled` is set, running calls end at once and kill their processes.
    """

    python: str
    shim: Path
    environ: Mapping[str, str]
    cancelled: threading.Event = field(default_factory=threading.Event)

    def call(self, *arguments: str, seconds: float) -> Mapping[str, object]:
        """Return the response of `crucible.inside.describe`. Raises RpcError."""
        kept = {name: self.environ[name] for name in INHERITED if name in self.environ}
        try:
            process = subprocess.Popen(
                [self.python, "-m", "crucible.inside.describe", *arguments],
                cwd=self.shim,
                env={**kept, "PYTHONPATH": str(self.shim), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise RpcError(f"{self.python} cannot be run: {error.strerror}") from error
        try:
            return _response(process, seconds, self.cancelled)
        finally:
            _end(process)


def _response(process: subprocess.Popen[bytes], seconds: float, cancelled: threading.Event) -> Mapping[str, object]:
    data, errors, in_time = _read(process, time.monotonic() + seconds, cancelled)
    stderr = errors.decode("utf-8", "replace").strip()
    if len(data) > MAX_OUTPUT:
        raise RpcError(f"its description is larger than {MAX_OUTPUT // 1024} KiB", stderr)
    if not in_time:
        raise RpcError(f"it did not answer within {round(seconds, 1):g} seconds", stderr)
    try:
        # An escape such as \ud800 is half a character, which cannot be stored or sent as UTF-8: replace it.
        doc = json.loads(json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise RpcError(_describe_exit(process), stderr) from None
    return doc if isinstance(doc, dict) else {}


def _read(process: subprocess.Popen[bytes], deadline: float, cancelled: threading.Event) -> tuple[bytes, bytes, bool]:
    """Return its standard output, the end of its standard error, and whether the output ended in time."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.fileno(), process.stderr.fileno()
    parts = {output: b"", errors: b""}
    with selectors.DefaultSelector() as waiting:
        for stream in parts:
            os.set_blocking(stream, False)
            waiting.register(stream, selectors.EVENT_READ)
        while output in waiting.get_map() and len(parts[output]) <= MAX_OUTPUT:
            left = deadline - time.monotonic()
            if left <= 0 or cancelled.is_set():
                return parts[output], parts[errors], False
            for key, _ in waiting.select(min(left, _TURN)):
                chunk = os.read(key.fd, _CHUNK)
                parts[key.fd] += chunk
                if not chunk:
                    waiting.unregister(key.fd)
            parts[errors] = parts[errors][-MAX_STDERR:]
    return parts[output], parts[errors] + _rest(errors), True


def _rest(stream: int) -> bytes:
    try:
        return os.read(stream, _CHUNK)
    except BlockingIOError:
        return b""


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "it closed its output without a response"
    return f"signal {-code} ended it" if code < 0 else f"it ended with code {code} and no response"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
