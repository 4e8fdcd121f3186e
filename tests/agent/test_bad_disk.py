"""Test a runner's files on a disk that stores only a part of each write, or nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.agent.output.test_output_log import World

from crucible.agent.files import is_locked, write_at
from crucible.agent.link import spool
from crucible.agent.link.spool import Spool
from crucible.agent.output import output_log
from crucible.wire.documents.messages import MessageKind


class BadDisk:
    """Writes everything, or `takes` bytes of each write before it fails."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.takes: int | None = None
        for module in (output_log, spool):
            patch.setattr(module, "write_at", self._write_at)
        patch.setattr(os, "truncate", self._truncate)
        patch.setattr(os, "rename", self._rename)

    def _write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        write_at(descriptor, data if self.takes is None else data[: self.takes], offset)
        self._fail()

    def _truncate(self, path: Path, size: int) -> None:
        self._fail()
        with open(path, "r+b") as file:
            file.truncate(size)

    def _rename(self, old: Path, new: Path) -> None:
        self._fail()
        os.replace(old, new)

    def _fail(self) -> None:
        if self.takes is not None:
            raise OSError(errno.EROFS, "Read-only file system")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    return BadDisk(monkeypatch)


@pytest.mark.parametrize("takes", [0, 5, 1000])
def test_output_that_was_half_taken_is_left_out_and_counted_once(tmp_path: Path, disk: BadDisk, takes: int) -> None:
    world = World(tmp_path)
    world.log.write([b"before"])
    disk.takes = takes
    for _ in range(3):
        world.log.write([b"lost, however long it is"])
    world.now = 100.0
    world.log.cut_if_due()
    assert world.log.unsent() is None, "nothing is finished that the disk did not take"
    disk.takes = None
    world.log.write([b"after"])
    world.log.finish()
    assert world.sent() == b"before\n[crucible] 3 lines left out: the disk was full\nafter\n"
    assert len(world.notes) == 1


def test_a_segment_that_could_not_be_finished_is_finished_later(tmp_path: Path, disk: BadDisk) -> None:
    world = World(tmp_path)
    world.log.write([b"one"])
    disk.takes = 0
    world.log.finish()
    assert not world.log.is_sent
    disk.takes = None
    world.now = 100.0
    world.log.cut_if_due()
    assert world.sent() == b"one\n"
    assert world.log.is_sent


@pytest.mark.parametrize("takes", [0, 9, 10_000])
def test_a_message_that_was_half_taken_leaves_no_trace(tmp_path: Path, disk: BadDisk, takes: int) -> None:
    said = Spool(tmp_path / "spool")
    said.append(MessageKind.STAGING, {"what": "a"})
    disk.takes = takes
    with pytest.raises(OSError, match="Read-only"):
        said.append(MessageKind.PROGRESS, {"fraction": 0.5, "text": "longer than what follows"})
    disk.takes = None
    said.append(MessageKind.EXITED, {"code": 0})
    assert [(m.n, m.kind) for m in said.unsent()] == [(1, MessageKind.STAGING), (2, MessageKind.EXITED)]
    said.close()
    assert [(m.n, m.kind) for m in Spool(tmp_path / "spool").unsent()] == [
        (1, MessageKind.STAGING),
        (2, MessageKind.EXITED),
    ]


def test_a_message_that_could_not_be_synced_is_not_said_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Spool(tmp_path / "spool")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _no_room)
        with pytest.raises(OSError, match="No space"):
            said.append(MessageKind.EXITED, {"code": 0})
    said.append(MessageKind.EXITED, {"code": 0})
    assert [message.n for message in said.unsent()] == [1]


def test_a_lock_that_cannot_be_looked_at_may_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lock").touch()
    assert not is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "none")
    monkeypatch.setattr(os, "open", _no_descriptor)
    assert is_locked(tmp_path / "lock")


def _no_room(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _no_descriptor(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")
