"""Test that checkpoints are announced once they are stored, and not before."""

from __future__ import annotations

import errno
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.agent.checkpoints.entries import zipped

from crucible.agent.checkpoints import upload
from crucible.agent.checkpoints.listing import read_entry
from crucible.agent.checkpoints.notes import SaveNote
from crucible.agent.checkpoints.snapshot import CheckpointCopy, Snapshotter
from crucible.agent.checkpoints.upload import CheckpointCallbacks, CheckpointUploader
from crucible.agent.checkpoints.watch import WholeEntry, WholeReason
from crucible.agent.link.channel import NoRoom
from crucible.agent.link.connection import ChannelError, Gone, Refused, Unreachable


def nothing() -> None:
    pass


@dataclass
class Store:
    """A fake server. `cuts` break uploads after that many bytes, `failures` are raised as responses."""

    cuts: Iterator[int] = field(default_factory=lambda: iter(()))
    failures: Iterator[ChannelError] = field(default_factory=lambda: iter(()))
    meanwhile: Callable[[], None] = nothing
    objects: dict[str, bytes] = field(default_factory=dict)
    tries: list[str] = field(default_factory=list)

    def put_checkpoint(self, sha256: str, content: BinaryIO, size: int) -> None:
        self.tries.append(sha256)
        cut = next(self.cuts, None)
        if cut is not None:
            content.read(cut)
            raise Unreachable("the connection broke")
        for failure in self.failures:
            raise failure
        data = content.read(size // 2)
        self.meanwhile()
        data += content.read()
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            raise Refused(422, "what arrived is not what was announced")
        self.objects[sha256] = data

    def close(self) -> None:
        pass


@dataclass
class Run:
    root: Path
    store: Store = field(default_factory=Store)
    announced: list[Mapping[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gone: int = 0

    def __post_init__(self) -> None:
        self.folder = self.root / "checkpoints"
        self.folder.mkdir()
        self.uploader = self.new()

    def new(self) -> CheckpointUploader:
        photographer = Snapshotter(self.folder, self.root / "snapshots")
        telling = CheckpointCallbacks(self.announce, self.notes.append, self._gone)
        return CheckpointUploader(self.store, photographer, self.root / "record.json", telling)  # type: ignore[arg-type]

    def announce(self, data: Mapping[str, object]) -> None:
        sha256 = str(data["sha256"])
        assert hashlib.sha256(self.store.objects[sha256]).hexdigest() == sha256
        assert len(self.store.objects[sha256]) == data["size"]
        self.announced.append(data)

    def _gone(self) -> None:
        self.gone += 1

    def write(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)

    def offer(self, name: str, how: WholeReason = WholeReason.SETTLED, note: SaveNote | None = None) -> None:
        entry = read_entry(self.folder, name)
        assert entry is not None
        self.uploader.offer(WholeEntry(entry, how, note))

    def names(self) -> list[object]:
        return [data["name"] for data in self.announced]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    class AtOnce:
        def next(self) -> float:
            return 0.0

        def reset(self) -> None:
            pass

    monkeypatch.setattr(upload, "Backoff", AtOnce)
    return Run(tmp_path)


def test_a_file_is_stored_and_announced(run: Run) -> None:
    run.write("step-00000005.bin", b"weights")
    run.offer("step-00000005.bin", WholeReason.NOTED, SaveNote("step-00000005.bin", 5, 0.5))
    run.uploader.finish(hurry=False)
    (data,) = run.announced
    sha256 = hashlib.sha256(b"weights").hexdigest()
    said = {"name": "step-00000005.bin", "form": "file", "size": 7, "sha256": sha256, "step": 5, "metric": 0.5}
    assert data == said
    assert run.notes == []


def test_a_folder_is_stored_as_one(run: Run) -> None:
    (run.folder / "checkpoint-500").mkdir()
    run.write("checkpoint-500/a", b"1")
    run.offer("checkpoint-500")
    run.uploader.finish(hurry=False)
    assert (run.announced[0]["form"], run.announced[0]["step"]) == ("folder", 500)


def test_an_upload_that_breaks_anywhere_is_never_announced_before_it_is_stored(run: Run) -> None:
    data = random.Random(7).randbytes(100_000)
    run.write("a.bin", data)
    run.store.cuts = iter(random.Random(8).choices(range(len(data)), k=30))
    run.offer("a.bin")
    run.uploader.finish(hurry=False)
    assert len(run.store.tries) == 31
    assert run.names() == ["a.bin"]
    assert list(run.store.objects.values()) == [data]


def test_overwritten_while_it_is_sent_the_copy_is_stored(run: Run) -> None:
    """The program writes to the same file, in place, as long as it runs."""
    run.write("last.bin", b"old" * 1000)
    run.store.meanwhile = lambda: run.write("last.bin", b"new" * 900)
    run.offer("last.bin")
    run.uploader.start()
    while not run.announced:
        run.uploader.join(0.01)
    assert list(run.store.objects.values()) == [b"old" * 1000]
    run.uploader.finish(hurry=False)


def test_overwritten_after_all_it_is_refused_and_forgotten(run: Run) -> None:
    """Another process writes after the program's end, when files are sent without a copy."""
    run.write("last.bin", b"old" * 100_000)
    run.store.meanwhile = lambda: run.write("last.bin", b"NEW" * 100_000)
    run.offer("last.bin")
    run.uploader.finish(hurry=False)
    assert run.announced == []
    assert run.store.objects == {}


@pytest.mark.parametrize("cut", [0, 1, 100, len(zipped()) - 1])
def test_a_torn_file_is_neither_sent_nor_announced(run: Run, cut: int) -> None:
    run.write("a.pt", zipped()[:cut])
    run.offer("a.pt")
    run.uploader.finish(hurry=False)
    assert (run.announced, run.store.tries) == ([], [])
    assert "'a.pt' was not stored" in run.notes[0]


def test_a_torn_file_that_becomes_whole_is_not_complained_of(run: Run) -> None:
    run.write("a.pt", zipped()[:-1])
    run.offer("a.pt")
    run.uploader.start()
    run.write("a.pt", zipped())
    run.offer("a.pt")
    run.uploader.finish(hurry=False)
    assert run.names() == ["a.pt"]
    assert run.notes == []


def test_the_same_content_again_is_not_announced_again(run: Run) -> None:
    run.write("a", b"1")
    run.offer("a")
    run.uploader.finish(hurry=False)
    run.uploader = run.new()
    run.write("a", b"1")
    run.offer("a")
    run.uploader.finish(hurry=False)
    assert run.names() == ["a"]
    assert run.uploader.stored == {"a"}


def test_a_successor_announces_nothing_older_than_what_was_announced(run: Run) -> None:
    run.write("older", b"1")
    older = read_entry(run.folder, "older")
    assert older is not None
    (run.folder / "older").touch()
    run.write("newer", b"2")
    run.offer("newer")
    run.uploader.finish(hurry=False)
    run.uploader = run.new()
    run.uploader.offer(WholeEntry(older, WholeReason.NOTED))
    run.uploader.finish(hurry=False)
    assert run.names() == ["newer"]


def test_order_at_the_end_and_in_a_hurry(run: Run) -> None:
    for name in ("a", "b", "c"):
        run.write(name, name.encode())
        run.offer(name)
    run.uploader.finish(hurry=True)
    assert run.names() == ["c"]
    run.uploader, run.announced = run.new(), []
    for name in ("d", "e"):
        run.write(name, name.encode())
        run.offer(name)
    run.uploader.finish(hurry=False)
    assert run.names() == ["d", "e"]


def test_a_notice_makes_the_newest_come_first_while_the_program_still_writes(run: Run) -> None:
    for name in ("a", "b"):
        run.write(name, name.encode() * 1000)
        run.offer(name)
    run.store.meanwhile = lambda: run.write("b", b"overwritten")
    run.uploader.store_newest_only()
    run.uploader.start()
    while not run.announced:
        run.uploader.join(0.01)
    run.uploader.finish(hurry=False)
    assert run.names() == ["b"]
    assert list(run.store.objects.values()) == [b"b" * 1000]


@pytest.mark.parametrize(
    ("error", "told"),
    [(Unreachable("away"), "away"), (NoRoom("the store is full"), "full"), (Refused(401, "not known"), "401")],
)
def test_it_is_tried_until_it_is_stored(run: Run, error: ChannelError, told: str) -> None:
    run.write("a", b"1")
    run.store.failures = iter([error] * (3 * upload.NOTE_AFTER))
    run.offer("a")
    run.uploader.finish(hurry=False)
    assert run.names() == ["a"]
    (note,) = run.notes
    assert told in note


def test_what_the_server_refuses_is_left_out_and_told(run: Run) -> None:
    for name in ("a", "b"):
        run.write(name, name.encode())
        run.offer(name)
    run.store.failures = iter([Refused(413, "too large")])
    run.uploader.finish(hurry=False)
    assert run.names() == ["b"]
    assert "'a' was not stored" in run.notes[0]


def test_nobody_wants_it_any_more(run: Run) -> None:
    run.write("a", b"1")
    run.store.failures = iter([Gone("settled")])
    run.offer("a")
    with pytest.raises(Gone):
        run.uploader.finish(hurry=False)
    assert (run.gone, run.announced) == (1, [])


def test_a_full_disk_is_told_and_at_the_end_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> CheckpointCopy:
        raise OSError(errno.ENOSPC, "No space left on device")

    run.write("a", b"1")
    run.offer("a")
    monkeypatch.setattr(Snapshotter, "take", full)
    run.uploader.finish(hurry=False)
    assert run.announced == []
    assert "disk of the machine is full" in run.notes[0]
    assert "'a' was not stored: No space left" in run.notes[1]


def test_nothing_offered_is_nothing_to_wait_for(run: Run) -> None:
    run.uploader.finish(hurry=False)
    assert not run.uploader.is_alive()
