"""Preparing: memory at hand for a reading, and never in the way of a question."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from crucible.analysis import Sources, analyse
from crucible.analysis.preparing import prepared
from crucible.analysis.sample import SAMPLE
from crucible.core.profile import GpuNeed


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_little_of_the_memory_is_held(line: tuple[socket.socket, socket.socket]) -> None:
    held = prepared(line[1])
    assert held
    assert sum(map(len, held)) < 50_000


def test_who_is_asked_meanwhile_prepares_nothing_more(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    ours.sendall(b"?")
    assert prepared(theirs) == []
    assert theirs.recv(1) == b"?"


def test_who_is_alone_prepares_nothing_more(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    ours.close()
    assert prepared(theirs) == []


def test_the_sample_is_followed_to_its_end() -> None:
    profile = analyse(Sources({"a.py": SAMPLE.encode()}, "a.py"))
    assert profile.notes == ()
    assert profile.gpu.value is GpuNeed.OPTIONAL
    assert set(profile.frameworks.value or ()) >= {"torch", "transformers"}
    assert profile.epochs.value
    assert profile.parameters.value
