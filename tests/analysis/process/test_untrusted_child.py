"""A child that a hostile program has taken over may answer anything, or nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest
from benchmarks.analysis.snippets import WHOLE
from tests.analysis.process.processes import GENEROUS
from tests.analysis.programs import sources

from crucible.analysis import AnalysisWorker, Limits, analyse
from crucible.analysis.process.protocol import (
    MAX_REQUEST,
    MAX_RESPONSE,
    PROFILE,
    STARTED,
    Response,
    receive,
    responses,
    send,
)
from crucible.core.routing.profile import Profile


class FakeWorkerProcess:
    """In place of the worker process: each child does what the test says."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self._act = act
        self.children = 0

    def connect(self) -> socket.socket:
        self.children += 1
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._run, args=(theirs,)).start()
        return ours

    def _run(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._act(connection)
            except OSError:
                return  # nobody listens any more


def answered_by(act: Callable[[socket.socket], None], limits: Limits = GENEROUS) -> tuple[Profile, FakeWorkerProcess]:
    worker = AnalysisWorker(limits)
    impostor = FakeWorkerProcess(act)
    worker.__dict__["_process"] = impostor
    return worker.profile(sources("x = 1")), impostor


def take_request(connection: socket.socket) -> None:
    connection.sendall(STARTED)
    receive(connection, MAX_REQUEST)


def after_the_request(connection: socket.socket, answer: bytes) -> None:
    take_request(connection)
    send(connection, answer)


def flood(connection: socket.socket) -> None:
    take_request(connection)
    connection.sendall(b"\xff\xff\xff\xff" + PROFILE)
    while True:
        connection.sendall(b" " * MAX_RESPONSE)


def test_an_answer_without_end_is_not_listened_to() -> None:
    profile, _ = answered_by(flood)
    assert profile.notes == ("a.py: Its profile is larger than 1 MiB.",)


@pytest.mark.parametrize("answer", [b"", b"{", b"null", b'{"profile": {"gpu": {"value": "perhaps"}}}', b"\xff\xfe"])
def test_an_answer_that_makes_no_sense_is_none(answer: bytes) -> None:
    profile, _ = answered_by(lambda connection: after_the_request(connection, PROFILE + answer))
    assert "invalid profile" in profile.notes[0]


def test_an_answer_cut_short_is_none() -> None:
    whole = responses().dump_json(Response(analyse(sources(WHOLE))))
    profile, _ = answered_by(lambda connection: after_the_request(connection, PROFILE + whole[:-20]))
    assert "invalid profile" in profile.notes[0]


@pytest.mark.parametrize("said", [b"", b"\0\0", b"\0\0\0\x09" + PROFILE + b"{"])
def test_a_connection_that_ends_within_an_answer_gives_none(said: bytes) -> None:
    def act(connection: socket.socket) -> None:
        take_request(connection)
        connection.sendall(said)

    profile, impostor = answered_by(act)
    assert "died" in profile.notes[0]
    assert impostor.children == 1, "one that has started is not replaced"


def test_silence_is_waited_out_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.analysis.process.client.GRACE_SECONDS", 0.0)
    over = threading.Event()

    def silent(connection: socket.socket) -> None:
        connection.sendall(STARTED)
        over.wait(60)

    begun = time.monotonic()
    profile, _ = answered_by(silent, Limits(cpu_seconds=0.05, wall_seconds=0.1))
    over.set()
    assert time.monotonic() - begun < 30
    assert profile.notes == ("a.py: The analysis took longer than 0.05 s.",)


def test_a_request_that_no_child_takes_is_sent_again_a_few_times() -> None:
    profile, impostor = answered_by(lambda connection: None)
    assert impostor.children == 3
    assert profile.notes == ("a.py: No process could be started to analyse it.",)
