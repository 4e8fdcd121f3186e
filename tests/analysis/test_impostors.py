"""A reader that is answered by somebody else than the warm process: what it hears cannot be trusted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest
from benchmarks.analysis.snippets import WHOLE
from tests.analysis.processes import PATIENT
from tests.analysis.programs import sources

from crucible.analysis import Bounds, Reader, analyse
from crucible.analysis.asking import (
    ANSWERED,
    AT_REST,
    KNOCK,
    MAX_ANSWER,
    MAX_QUESTION,
    NO_ROOM,
    TAKEN,
    Answer,
    answers,
    receive,
    send,
)
from crucible.core.profile import Profile

RIGHT = answers().dump_json(Answer(analyse(sources("x = 1"))))


class Impostor:
    """In the place of the warm process: whoever takes a question does what the test says."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self._act = act
        self.asked = 0

    def hand_over(self, asker: socket.socket) -> bool:
        self.asked += 1
        threading.Thread(target=self._take, args=(asker.dup(),)).start()
        return True

    def _take(self, asker: socket.socket) -> None:
        with asker:
            try:
                self._act(asker)
            except OSError:
                return  # nobody listens any more

    def close(self) -> None:
        return None


def answered_by(act: Callable[[socket.socket], None], bounds: Bounds = PATIENT) -> tuple[Profile, Impostor]:
    reader = Reader(bounds)
    impostor = Impostor(act)
    reader.__dict__["_warm"] = impostor
    return reader.profile(sources("x = 1")), impostor


def taken_for_ada(act: Callable[[socket.socket], None], times: int) -> int:
    """How many lines it took to answer her so often, each time rightly."""
    reader = Reader(PATIENT)
    reader.__dict__["_warm"] = impostor = Impostor(act)
    for _ in range(times):
        assert reader.profile(sources("x = 1"), whose="ada") == analyse(sources("x = 1"))
    reader.close()
    return impostor.asked


def take_question(asker: socket.socket) -> None:
    asker.sendall(TAKEN)
    receive(asker, MAX_QUESTION)


def after_the_question(asker: socket.socket, answer: bytes) -> None:
    take_question(asker)
    send(asker, answer)


def flood(asker: socket.socket) -> None:
    take_question(asker)
    asker.sendall(b"\xff\xff\xff\xff" + ANSWERED)
    while True:
        asker.sendall(b" " * MAX_ANSWER)


def test_an_answer_without_end_is_not_listened_to() -> None:
    profile, _ = answered_by(flood)
    assert profile.notes == ("a.py: What was read of it is more than 1 MiB.",)


@pytest.mark.parametrize("answer", [b"", b"{", b"null", b'{"profile": {"gpu": {"value": "perhaps"}}}', b"\xff\xfe"])
def test_an_answer_that_makes_no_sense_is_none(answer: bytes) -> None:
    profile, _ = answered_by(lambda asker: after_the_question(asker, ANSWERED + answer))
    assert "makes no sense" in profile.notes[0]


def test_an_answer_cut_short_is_none() -> None:
    whole = answers().dump_json(Answer(analyse(sources(WHOLE))))
    profile, _ = answered_by(lambda asker: after_the_question(asker, ANSWERED + whole[:-20]))
    assert "makes no sense" in profile.notes[0]


@pytest.mark.parametrize("said", [b"", b"\0\0", b"\0\0\0\x09" + ANSWERED + b"{"])
def test_a_line_that_ends_within_an_answer_is_none(said: bytes) -> None:
    def act(asker: socket.socket) -> None:
        take_question(asker)
        asker.sendall(said)

    profile, impostor = answered_by(act)
    assert "broke down" in profile.notes[0]
    assert impostor.asked == 1, "it was taken, and is not asked again"


@pytest.mark.parametrize("at_last", [AT_REST, AT_REST + b"x", b"x", b""])
def test_one_that_only_seems_to_be_at_rest_is_done_without(at_last: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.analysis.reader.KNOCKING", 0.05)

    def act(asker: socket.socket) -> None:
        after_the_question(asker, ANSWERED + RIGHT)
        asker.sendall(at_last)
        asker.recv(1)  # whoever knocks is not let in

    assert taken_for_ada(act, 3) == 3


def test_one_without_room_for_another_program_leaves_it_to_a_new_one() -> None:
    def act(asker: socket.socket) -> None:
        after_the_question(asker, ANSWERED + RIGHT)
        asker.sendall(AT_REST)
        assert asker.recv(1) == KNOCK
        after_the_question(asker, NO_ROOM)

    assert taken_for_ada(act, 2) == 2


def test_silence_is_waited_out_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crucible.analysis.reader._GRACE", 0.0)
    over = threading.Event()

    def silent(asker: socket.socket) -> None:
        asker.sendall(TAKEN)
        over.wait(60)

    begun = time.monotonic()
    profile, _ = answered_by(silent, Bounds(seconds=0.05, patience=0.1))
    over.set()
    assert time.monotonic() - begun < 30
    assert profile.notes == ("a.py: Reading it took longer than 0.05 s.",)


def test_a_question_that_nobody_takes_is_asked_again_a_few_times() -> None:
    profile, impostor = answered_by(lambda asker: None)
    assert impostor.asked == 3
    assert profile.notes == ("a.py: No process could be started to read it.",)
