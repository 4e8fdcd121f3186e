"""An acknowledged job is on disk: seen from the system calls, the sync lies between request and answer."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.harness import Deployment, shell, until

SUBMITS = 5
CALLS = "recvfrom,read,sendto,sendmsg,write,writev,pwrite64,fsync,fdatasync"

_LINE = re.compile(r"^(?P<thread>\d+) +[\d.]+ (?P<rest>.*)$")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>")
_CALL = re.compile(r"^(?P<name>\w+)\(\d+<(?P<file>[^>]*)>")


@dataclass(frozen=True)
class Call:
    """A system call; `begin` and `end` are places in the order of the trace."""

    name: str
    file: str
    text: str
    begin: int
    end: int

    @property
    def succeeded(self) -> bool:
        return " = -1 " not in self.text


def test_an_answer_comes_after_the_sync(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    crucible = Deployment(tmp_path)
    try:
        crucible.start(strace, "-f", "-ttt", "-y", "-s", "64", "-e", f"trace={CALLS}", "-o", str(trace), seconds=60)
        jobs = [crucible.submit(shell("true")) for _ in range(SUBMITS)]
        _end_traced(crucible)
    finally:
        crucible.close()
    assert len(set(jobs)) == SUBMITS
    calls = list(parse(trace.read_text(errors="replace")))
    answers = [c for c in calls if c.name.startswith(("send", "write")) and '"HTTP/1.1 201' in c.text]
    assert len(answers) == SUBMITS
    for answer in answers:
        _check(calls, answer)


def _end_traced(crucible: Deployment) -> None:
    """strace writes everything down once all it follows has ended; that is hosts and runners too, also those that were
    just being started.
    """
    until(lambda: _ended(crucible), 30, "strace to end")


def _ended(crucible: Deployment) -> bool:
    for process in [*crucible.servers(), *crucible.processes()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert crucible.server is not None
    return crucible.server.poll() is not None


def _check(calls: list[Call], answer: Call) -> None:
    request = max(
        (c for c in calls if c.file == answer.file and '"POST /api/v1/jobs ' in c.text and c.end < answer.begin),
        key=lambda c: c.end,
    )
    between = [c for c in calls if request.end < c.begin and c.end < answer.begin and c.succeeded]
    log = [c for c in between if c.file.endswith("crucible.db-wal")]
    writes = [c for c in log if c.name == "pwrite64"]
    assert writes, "the request changed the database"
    syncs = [c for c in log if c.name in ("fsync", "fdatasync")]
    assert any(sync.begin > writes[0].end for sync in syncs), "and that was synced before the answer"


def parse(text: str) -> Iterator[Call]:
    """Every finished call. A call during which another thread ran is on two lines."""
    open_calls: dict[str, tuple[int, str]] = {}
    for place, line in enumerate(text.splitlines()):
        found = _LINE.match(line)
        if found is None:
            continue
        thread, rest = found["thread"], found["rest"]
        if rest.endswith(_UNFINISHED):
            open_calls[thread] = (place, rest.removesuffix(_UNFINISHED))
            continue
        begin = place
        if _RESUMED.match(rest):
            begin, start = open_calls.pop(thread)
            rest = start + _RESUMED.sub("", rest)
        call = _CALL.match(rest)
        if call is not None:
            yield Call(call["name"], call["file"], rest, begin, place)


def test_the_trace_is_read_right() -> None:
    text = """\
7 1.0 recvfrom(9<socket:[5]>, "POST /api/v1/jobs HTTP", 262144, 0, NULL, NULL) = 22
8 1.1 fdatasync(4</h/crucible.db-wal> <unfinished ...>
7 1.2 sendto(9<socket:[5]>, "HTTP/1.1 201 Created", 20, 0, NULL, 0) = 20
8 1.3 <... fdatasync resumed>)    = 0
8 1.4 +++ exited with 0 +++
"""
    request, answer, sync = parse(text)
    assert (request.name, request.file, request.begin) == ("recvfrom", "socket:[5]", 0)
    assert (answer.begin, answer.end) == (2, 2)
    assert (sync.file, sync.begin, sync.end, sync.succeeded) == ("/h/crucible.db-wal", 1, 3, True)
