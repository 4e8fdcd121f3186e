"""Calls `crucible.inside.describe` in a subprocess of a Python, with a deadline and bounded output."""

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

MOST_ANSWER = 1024 * 1024
MOST_WORDS = 16 * 1024
_CHUNK = 64 * 1024
_TURN = 0.2
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL")
"""What a job gets of its host's variables; a plugin is asked as it would run, and sees no secret of the shell's."""


class RpcError(Exception):
    """The process gave no answer; the text says why, `stderr` is the end of what it wrote there."""

    def __init__(self, text: str, words: str = "") -> None:
        super().__init__(text)
        self.stderr = words


@dataclass(frozen=True)
class SubprocessRpc:
    """`shim` is a folder that gives a Python its `crucible`; it is also where the process runs.

    Once `cancelled` is set, running calls end at once and kill their process.
    """

    python: str
    shim: Path
    environ: Mapping[str, str]
    cancelled: threading.Event = field(default_factory=threading.Event)

    def call(self, *arguments: str, seconds: float) -> Mapping[str, object]:
        """Return the answer of `crucible.inside.describe`. Raises RpcError."""
        kept = {name: self.environ[name] for name in PASSED_ON if name in self.environ}
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
            return _answer(process, seconds, self.cancelled)
        finally:
            _end(process)


def _answer(process: subprocess.Popen[bytes], seconds: float, cancelled: threading.Event) -> Mapping[str, object]:
    data, words, in_time = _read(process, time.monotonic() + seconds, cancelled)
    said = words.decode("utf-8", "replace").strip()
    if len(data) > MOST_ANSWER:
        raise RpcError(f"its description is larger than {MOST_ANSWER // 1024} KiB", said)
    if not in_time:
        raise RpcError(f"it did not answer within {round(seconds, 1):g} seconds", said)
    try:
        # An escape such as \ud800 is half a character, which nobody who stores or sends text takes.
        doc = json.loads(json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise RpcError(_how_it_ended(process), said) from None
    return doc if isinstance(doc, dict) else {}


def _read(process: subprocess.Popen[bytes], deadline: float, cancelled: threading.Event) -> tuple[bytes, bytes, bool]:
    """All of its standard output, the end of its standard error, and whether the first ended in time."""
    assert process.stdout is not None
    assert process.stderr is not None
    answer, words = process.stdout.fileno(), process.stderr.fileno()
    parts = {answer: b"", words: b""}
    with selectors.DefaultSelector() as waiting:
        for stream in parts:
            os.set_blocking(stream, False)
            waiting.register(stream, selectors.EVENT_READ)
        while answer in waiting.get_map() and len(parts[answer]) <= MOST_ANSWER:
            left = deadline - time.monotonic()
            if left <= 0 or cancelled.is_set():
                return parts[answer], parts[words], False
            for key, _ in waiting.select(min(left, _TURN)):
                chunk = os.read(key.fd, _CHUNK)
                parts[key.fd] += chunk
                if not chunk:
                    waiting.unregister(key.fd)
            parts[words] = parts[words][-MOST_WORDS:]
    return parts[answer], parts[words] + _rest(words), True


def _rest(stream: int) -> bytes:
    try:
        return os.read(stream, _CHUNK)
    except BlockingIOError:
        return b""


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "it closed its output without an answer"
    return f"signal {-code} ended it" if code < 0 else f"it ended with code {code} and no answer"


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
