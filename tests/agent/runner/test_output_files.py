from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest

from crucible.agent.link.channel import NoRoom
from crucible.agent.link.connection import ChannelError, Gone, Refused, Unreachable
from crucible.agent.runner.output_files import NOTE_AFTER, OutputStorer, StoredFile


@dataclass
class Server:
    """The part of a channel that outputs use. It accepts files after it has raised each of `failures`."""

    failures: Iterator[ChannelError] = field(default_factory=lambda: iter(()))
    files: dict[str, bytes] = field(default_factory=dict)

    def put_artifact(self, name: str, content: BinaryIO, size: int, sha256: str) -> None:
        data = content.read()
        for failure in self.failures:
            raise failure
        assert len(data) == size
        self.files[name] = data


@dataclass
class Run:
    folder: Path
    server: Server
    stored: list[StoredFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def store(self) -> tuple[bool, str]:
        channel = self.server
        outputs = OutputStorer(self.folder, channel, self.stored.append, self.notes.append, self.waits.append)  # type: ignore[arg-type]
        return outputs.store()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 10)
    return Run(tmp_path, Server())


def failing(*errors: ChannelError) -> Server:
    return Server(iter(errors))


def test_everything_is_stored_without_a_word(run: Run) -> None:
    assert run.store() == (True, "")
    assert run.server.files == {"a": b"a" * 10, "b": b"b" * 10, "c": b"c" * 10}
    assert [(file.path, file.size) for file in run.stored] == [("a", 10), ("b", 10), ("c", 10)]
    assert (run.notes, run.waits) == ([], [])


def test_a_short_absence_is_not_worth_a_word(run: Run) -> None:
    run.server = failing(*[Unreachable("away")] * (NOTE_AFTER - 1))
    assert run.store() == (True, "")
    assert run.notes == []
    assert len(run.waits) == NOTE_AFTER - 1


def test_a_full_store_is_told_at_once_and_once(run: Run) -> None:
    run.server = failing(*[NoRoom("the server answered 507 There is no room")] * 50)
    assert run.store() == (True, "")
    (note,) = run.notes
    assert "'a'" in note
    assert "There is no room" in note
    assert len(run.stored) == 3


@pytest.mark.parametrize("error", [Unreachable("no answer: timed out"), Refused(401, "not yet known")])
def test_many_tries_are_told_once(run: Run, error: ChannelError) -> None:
    run.server = failing(*[error] * (5 * NOTE_AFTER))
    assert run.store() == (True, "")
    (note,) = run.notes
    assert str(error) in note


def test_another_reason_is_told_too(run: Run) -> None:
    run.server = failing(*[Unreachable("away")] * NOTE_AFTER, *[NoRoom("full")] * 3, Unreachable("away"))
    run.store()
    assert ["away" in note for note in run.notes] == [True, False]
    assert "full" in run.notes[1]


def test_what_is_refused_is_left_out_and_told(run: Run) -> None:
    run.server = failing(Refused(422, "not what was announced"))
    assert run.store() == (False, "1 output was not stored")
    assert "'a' was not stored" in run.notes[0]
    assert [file.path for file in run.stored] == ["b", "c"]


def test_nobody_wants_them_any_more(run: Run) -> None:
    run.server = failing(Gone("no longer wanted"))
    with pytest.raises(Gone):
        run.store()
