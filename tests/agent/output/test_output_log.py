from __future__ import annotations

from pathlib import Path

from crucible.agent.output.output_log import OutputLimits, OutputLog


class World:
    """A fake clock and disk, and the notes that were made."""

    def __init__(self, folder: Path, **room: int) -> None:
        self.now = 0.0
        self.free = 10**12
        self.notes: list[str] = []
        self.folder = folder / "output.log"
        self.room = OutputLimits(free=lambda folder: self.free, **room)
        self.log = self.open()

    def open(self, announced: tuple[int, int] = (0, 0)) -> OutputLog:
        return OutputLog(self.folder, self.notes.append, self.room, announced, lambda: self.now)

    def sent(self) -> bytes:
        """Return the finished segments as one text, and check that they have no gap."""
        data = b""
        while True:
            segment = self.log.unsent()
            if segment is None:
                return data
            piece = segment.path.read_bytes()
            assert (segment.end - segment.start, segment.lines) == (len(piece), piece.count(b"\n"))
            data += piece
            self.log.remove_segment(segment)


def test_a_segment_is_cut_after_a_second_at_first_and_then_after_five(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.write([b"a", b"b"])
    world.log.cut_if_due()
    assert world.log.unsent() is None
    world.now = 1.0
    world.log.cut_if_due()
    assert world.sent() == b"a\nb\n"
    world.now = 20.0
    world.log.write([b"c"])
    world.now = 24.0
    world.log.cut_if_due()
    assert world.log.unsent() is None
    world.now = 25.0
    world.log.cut_if_due()
    assert world.sent() == b"c\n"
    assert world.log.is_sent


def test_much_output_is_cut_by_size(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = [b"x" * 1000] * 3000
    world.log.write(lines)
    world.log.finish()
    assert len(list(world.folder.glob("*.log"))) > 4
    assert world.sent() == b"\n".join(lines) + b"\n"


def test_the_tail_is_what_is_new(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.log.tail() is None
    world.log.write([b"one"])
    assert world.log.tail() == (0, b"one\n")
    assert world.log.tail() is None
    world.log.finish()
    world.log.write([b"two"])
    assert world.log.tail() == (4, b"two\n")
    world.log.write([b"x" * 200_000])
    start, data = world.log.tail() or (0, b"")
    assert len(data) == 65536
    assert start + len(data) == world.log.end


def test_a_restart_finishes_what_was_open(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.write([b"one"])
    world.log.finish()
    world.log.write([b"two"])
    world.log = world.open()
    world.log.write([b"three"])
    world.log.finish()
    assert world.sent() == b"one\ntwo\nthree\n"


def test_a_restart_goes_on_after_what_was_announced(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.write([b"one"])
    world.log.finish()
    world.log = world.open(announced=(1, 4))
    assert world.log.unsent() is None
    world.log.write([b"two"])
    world.log.finish()
    segment = world.log.unsent()
    assert segment is not None
    assert (segment.n, segment.start) == (2, 4)


def test_output_beyond_its_limit_is_left_out_and_said_once(tmp_path: Path) -> None:
    world = World(tmp_path, output_bytes=100)
    for _ in range(5):
        world.log.write([b"x" * 40])
    world.log.finish()
    data = world.sent()
    assert data.startswith(b"x" * 40 + b"\n" + b"x" * 40 + b"\n[crucible] output beyond 100 bytes")
    assert data.count(b"\n") == 3
    assert len(world.notes) == 1


def test_a_full_disk_leaves_out_and_marks_the_place(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.write([b"before"])
    world.free, world.now = 1000, 2.0
    world.log.write([b"lost"])
    world.log.write([b"lost", b"lost"])
    world.free, world.now = 10**12, 4.0
    world.log.write([b"after"])
    world.log.finish()
    assert world.sent() == b"before\n[crucible] 3 lines left out: the disk was full\nafter\n"
    assert len(world.notes) == 1
