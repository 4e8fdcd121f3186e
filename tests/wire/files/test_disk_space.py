from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.disks import small_disk

from crucible.wire.files.archive import Entry, pack, unpack
from crucible.wire.files.disk_space import KEEP_FREE, DiskSpace, NotEnoughSpace

MiB = 1024**2
GiB = 1024**3


@dataclass
class Disk:
    total: int
    free: int
    measured: int = 0

    def __call__(self, folder: Path) -> tuple[int, int, int]:
        self.measured += 1
        return self.total, self.total - self.free, self.free

    @property
    def space(self) -> DiskSpace:
        return DiskSpace(Path("/data"), self)


def test_what_fits_leaves_the_reserve() -> None:
    disk = Disk(100 * GiB, KEEP_FREE + 10)
    disk.space.check(10)
    disk.space.take(10)
    for ask in (disk.space.check, disk.space.take):
        with pytest.raises(NotEnoughSpace) as caught:
            ask(2 * GiB)
        assert str(caught.value) == (
            "it needs 2.0 GiB more, and the disk of /data has 256.0 MiB free, of which 256.0 MiB have to stay free"
        )


def test_a_small_disk_keeps_a_part_of_itself() -> None:
    disk = Disk(200 * MiB, 20 * MiB)
    disk.space.check(10 * MiB)
    with pytest.raises(NotEnoughSpace, match=r"10\.0 MiB have to stay free"):
        disk.space.check(10 * MiB + 1)


def test_what_others_write_meanwhile_is_noticed() -> None:
    disk = Disk(100 * GiB, GiB)
    space = disk.space

    def write() -> None:
        for _ in range(1000):
            space.take(MiB)
            disk.free -= 5 * MiB

    with pytest.raises(NotEnoughSpace):
        write()
    assert disk.free > KEEP_FREE - 16 * 5 * MiB


def test_small_pieces_do_not_measure_each() -> None:
    disk = Disk(100 * GiB, 50 * GiB)
    space = disk.space
    for _ in range(1000):
        space.take(1000)
    assert disk.measured == 1


@pytest.mark.parametrize("files", [1, 40])
def test_unpacking_ends_before_the_disk_is_full_and_leaves_nothing(tmp_path: Path, files: int) -> None:
    raw = io.BytesIO()
    pack([Entry.of_bytes(f"{n}.bin", bytes(40 * MiB // files)) for n in range(files)], raw)
    raw.seek(0)
    with small_disk(tmp_path / "disk", 32 * MiB) as disk:
        with pytest.raises(NotEnoughSpace, match="have to stay free"):
            unpack(raw, disk.path / "out", max_bytes=GiB, max_files=1000)
        assert disk.free > 31 * MiB
        assert list(disk.path.iterdir()) == []
