from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import pytest

from crucible.agent.link.channel import NoRoom
from crucible.agent.link.connection import ChannelError, Gone, Refused, Unreachable
from crucible.agent.runner import output_files
from crucible.agent.runner.output_files import MAX_NOTES, NOTE_AFTER, OutputStorer, StoredFile, files_below


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

    def store(self, *, asked_for: bool = True) -> tuple[bool, str]:
        channel = self.server
        storer = OutputStorer(
            channel,  # type: ignore[arg-type]
            self.stored.append,
            self.notes.append,
            self.waits.append,
            lambda data: b"s3cret" in data,
        )
        files = files_below(self.folder)
        return storer.store(replace(file, asked_for=asked_for) for file in files)


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
    assert run.store() == (False, "1 output was not stored: a")
    assert "'a' was not stored" in run.notes[0]
    assert [file.path for file in run.stored] == ["b", "c"]


def test_nobody_wants_them_any_more(run: Run) -> None:
    run.server = failing(Gone("no longer wanted"))
    with pytest.raises(Gone):
        run.store()


def test_a_file_that_contains_a_secret_is_left_out_and_named(run: Run) -> None:
    (run.folder / "config.json").write_text('{"key": "s3cret"}')
    (run.folder / "s3cret.txt").write_text("harmless")
    assert run.store() == (False, "1 output was not stored: s3cret.txt")
    assert run.store(asked_for=False) == (False, "2 outputs were not stored: config.json, s3cret.txt")
    assert run.notes[1] == "the output 'config.json' was not stored: it contains a secret"


def test_a_large_file_is_not_searched_for_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "MAX_SEARCHED", 9)
    (run.folder / "a").write_text("s3cret....")
    assert run.store(asked_for=False) == (True, "")


def test_more_files_than_are_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "MAX_FILES", 2)
    assert run.store() == (False, "1 output was not stored: …")
    assert sorted(run.server.files) == ["a", "b"]
    assert run.notes == ["1 output was not stored: there are more than 2 files"]


def test_more_bytes_than_are_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "MAX_BYTES", 25)
    assert run.store() == (False, "1 output was not stored: c")


def test_of_two_files_with_one_name_the_first_is_stored(run: Run) -> None:
    storer = OutputStorer(run.server, run.stored.append, run.notes.append, run.waits.append)  # type: ignore[arg-type]
    stored = storer.store([*files_below(run.folder), *files_below(run.folder)])
    assert stored == (False, "3 outputs were not stored: a, b, c")
    assert "another output has this name" in run.notes[0]


def test_notes_about_single_files_are_few(run: Run) -> None:
    for number in range(MAX_NOTES + 10):
        (run.folder / f"out{number:02}").symlink_to("/etc/hostname")
    assert run.store() == (False, "30 outputs were not stored: out00, out01, out02, …")
    assert len(run.notes) == MAX_NOTES


def test_a_store_that_stays_full_holds_up_only_what_was_asked_for(run: Run) -> None:
    run.server = failing(*[NoRoom("full")] * (NOTE_AFTER + 2))
    assert run.store(asked_for=False) == (False, "3 outputs were not stored: a, b, c")
    assert len(run.waits) == NOTE_AFTER - 1
    run.server = failing(*[NoRoom("full")] * (NOTE_AFTER + 2))
    assert run.store() == (True, "")
