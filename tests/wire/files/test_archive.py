from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import Record, Scale
from tests.wire.canary import Canary, wrong_inside
from tests.wire.hostile import HOSTILE, a_file, a_link, built, file_info, info_of
from tests.wire.hostile_more import ODD, REFUSED, Construction
from tests.wire.valid_archives import ENTRIES, packed

from crucible.wire.files.archive import Entry, Folder, Link, pack, unpack
from crucible.wire.files.paths import UnsafePath
from crucible.wire.files.tar_stream import BadArchive


def unpacked(data: bytes, dest: Path, max_bytes: int = 10_000_000, max_files: int = 1000) -> list[str]:
    return unpack(io.BytesIO(data), dest, max_bytes=max_bytes, max_files=max_files)


# What is packed comes back


def test_what_is_packed_comes_back(tmp_path: Path) -> None:
    names = unpacked(packed(ENTRIES), tmp_path / "out")
    out = tmp_path / "out"
    assert names == sorted(entry.name for entry in ENTRIES if not isinstance(entry.source, Folder))
    for entry in ENTRIES:
        path = out / entry.name
        if isinstance(entry.source, bytes):
            assert path.read_bytes() == entry.source
            assert os.access(path, os.X_OK) == entry.executable
    assert os.readlink(out / "data/tool") == "../bin/run.sh"
    assert (out / "data/tool").read_bytes() == b"#!/bin/sh\n"
    assert (out / "logs/empty").is_dir()
    assert list(tmp_path.iterdir()) == [out]


def test_a_plain_tar_comes_back_or_is_refused_where_it_is_cut(tmp_path: Path) -> None:
    raw = io.BytesIO()
    pack(ENTRIES, raw, compressed=False)
    data = raw.getvalue()
    limits = {"max_bytes": 10_000_000, "max_files": 1000, "compressed": False}
    names = unpack(io.BytesIO(data), tmp_path / "out", **limits)
    assert names == unpacked(packed(ENTRIES), tmp_path / "same")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        assert {member.name for member in tar} == {entry.name for entry in ENTRIES}
        end = max(member.offset_data + -(-member.size // 512) * 512 for member in tar)
    for cut in range(0, end + 512, 61):
        with pytest.raises(BadArchive):
            unpack(io.BytesIO(data[:cut]), tmp_path / "cut", **limits)
    assert not (tmp_path / "cut").exists()


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"content")
    first = packed([*ENTRIES, Entry.of_file("f", file)])
    os.utime(file, (1, 1))
    file.chmod(0o600)
    assert packed([Entry.of_file("f", file), *reversed(ENTRIES)]) == first
    file.chmod(0o700)
    assert packed([*ENTRIES, Entry.of_file("f", file)]) != first


def test_nothing_of_this_computer_is_in_the_archive(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x")
    data = packed([Entry.of_file("f", file)])
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        info = tar.getmember("f")
    assert (info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode) == (0, 0, 0, "", "", 0o644)


NAMES = st.lists(st.text("ab/é .", min_size=1, max_size=120), max_size=8)


@settings(max_examples=60, deadline=None)
@given(names=NAMES, data=st.binary(max_size=2000))
def test_any_tree_is_refused_or_survives_the_trip(
    names: list[str], data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        archive = packed([Entry.of_bytes(name, data) for name in names])
    except (UnsafePath, BadArchive):
        return
    out = tmp_path_factory.mktemp("trip") / "out"
    assert unpacked(archive, out) == sorted(names)
    assert all((out / name).read_bytes() == data for name in names)


@pytest.mark.parametrize(
    "entry",
    [
        Entry.of_bytes("../x", b""),
        Entry.of_bytes("/x", b""),
        Entry("l", Link("/etc/passwd")),
        Entry("l", Link("../x")),
        Entry("a/l", Link("../../x")),
        Entry("l", Link("")),
        Entry("l", Link("x" * 2000)),
    ],
)
def test_pack_refuses_what_leads_out(entry: Entry) -> None:
    with pytest.raises(UnsafePath) as caught:
        packed([entry])
    assert caught.value.name == entry.name


def test_pack_refuses_names_that_cannot_stand_together() -> None:
    with pytest.raises(BadArchive, match="twice"):
        packed([Entry.of_bytes("a", b"1"), Entry.of_bytes("a", b"2")])
    with pytest.raises(BadArchive, match="not a folder"):
        packed([Entry.of_bytes("a", b"1"), Entry.of_bytes("a/b", b"2")])
    with pytest.raises(BadArchive, match="not a folder"):
        packed([Entry("a", Link("c")), Entry.of_bytes("a/b", b"2")])


def test_pack_reads_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("pipe", "link"):
        with pytest.raises(OSError):
            packed([Entry("f", tmp_path / name)])


# Where it goes


def test_an_empty_folder_is_filled_and_any_other_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    unpacked(packed(ENTRIES), tmp_path / "empty")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("kept")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("full", "link"):
        with pytest.raises(FileExistsError):
            unpacked(packed(ENTRIES), tmp_path / name)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 300:
                raise ConnectionResetError("gone")
            return super().read(min(size or 0, 100))

    data = packed([Entry.of_bytes("x", random.Random(1).randbytes(5000))])
    with pytest.raises(ConnectionResetError):
        unpack(Failing(data), tmp_path / "out", max_bytes=10_000, max_files=10)
    assert list(tmp_path.iterdir()) == []


def test_limits_are_exact(tmp_path: Path) -> None:
    data = packed([Entry.of_bytes("a/b", b"x" * 100), Entry.of_bytes("c", b"y" * 100)])
    unpacked(data, tmp_path / "fits", max_bytes=200, max_files=3)
    with pytest.raises(BadArchive, match="more than 199 bytes"):
        unpacked(data, tmp_path / "bytes", max_bytes=199, max_files=3)
    with pytest.raises(BadArchive, match="more than 2 files"):
        unpacked(data, tmp_path / "files", max_bytes=200, max_files=2)


def test_archives_of_other_tools_are_read(tmp_path: Path) -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        name = "d" * 90 + "/" + "f" * 90
        data = built((file_info(name, b"abc"), b"abc"), (info_of("dir", tarfile.DIRTYPE), b""), form=form)
        assert unpacked(data, tmp_path / f"out{form}") == [name]


# Hostile archives

CONSTRUCTIONS = (*HOSTILE, *REFUSED, *ODD)
MOST_BYTES, MOST_FILES, FEW_FILES = 1_000_000, 1000, 100


def each_of(scale: Scale) -> int:
    """How many archives of each construction."""
    return -(-scale.archives // len(CONSTRUCTIONS))


def forms(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The archive as it is, and the tar in it where that can be taken out."""
    yield data, True
    try:
        yield gzip.decompress(data), False
    except (OSError, EOFError, zlib.error):
        yield data, False


def test_no_hostile_archive_escapes(tmp_path: Path, scale: Scale, record: Record) -> None:
    canary = Canary(tmp_path / "top")
    refused = 0
    for construction in CONSTRUCTIONS:
        for seed in range(each_of(scale)):
            data = construction(random.Random(seed))
            told = f"{construction.__name__} of seed {seed}"
            for content, compressed in forms(data):
                gone = is_refused(construction, content, compressed, canary, told)
                refused += gone and compressed
    made = each_of(scale) * len(CONSTRUCTIONS)
    assert made >= scale.archives
    assert not Path("/tmp/escaped").exists()
    record("hostile archives", archives=made, refused=refused, escapes=0)


def is_refused(construction: Construction, data: bytes, compressed: bool, canary: Canary, told: str) -> bool:
    """Whether it was; if not, what it made is looked at and cleared away."""
    files = FEW_FILES if "bomb" in construction.__name__ else MOST_FILES
    try:
        unpack(io.BytesIO(data), canary.dest, max_bytes=MOST_BYTES, max_files=files, compressed=compressed)
    except BadArchive:
        assert not canary.dest.exists(), told
        return True
    else:
        # In a plain tar nothing follows the end, which is what some of them are about.
        assert construction in ODD or not compressed, f"{told} was taken"
        assert not wrong_inside(canary.dest), told
        shutil.rmtree(canary.dest)
        return False
    finally:
        assert canary.is_alive(), told


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for top, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(top) / name
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (path.lstat().st_mode, content)
    return found


def test_a_flipped_bit_is_noticed_or_harmless(tmp_path: Path) -> None:
    data = packed(ENTRIES)
    unpacked(data, tmp_path / "sound")
    rng = random.Random(7)
    for n in range(200):
        broken = bytearray(data)
        broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        out = tmp_path / f"out{n}" / "sound"
        out.parent.mkdir()
        try:
            unpacked(bytes(broken), out)
        except BadArchive:
            assert list(out.parent.iterdir()) == []
        else:
            same = {path.removeprefix(str(tmp_path)): what for path, what in snapshot(tmp_path / "sound").items()}
            prefix = str(out.parent)
            assert {path.removeprefix(prefix): what for path, what in snapshot(out).items()} == same


@settings(max_examples=150, deadline=None)
@given(body=st.binary(max_size=3000))
def test_any_tar_bytes_are_refused_or_stay_inside(body: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    top = tmp_path_factory.mktemp("any")
    try:
        unpacked(gzip.compress(body + b"\x00" * 1024), top / "out")
    except BadArchive:
        assert list(top.iterdir()) == []
    else:
        assert list(top.iterdir()) == [top / "out"]


def test_links_that_stay_inside_are_kept(tmp_path: Path) -> None:
    data = built(
        a_file("a/b/c"),
        a_link("a/up", "../a/b/c"),
        a_link("here", "."),
        a_link("gone", "later"),
        a_link("x", "here/a"),
    )
    assert unpacked(data, tmp_path / "out") == ["a/b/c", "a/up", "gone", "here", "x"]
    assert (tmp_path / "out/x/up").read_bytes() == b"evil"


def test_dangerous_mode_bits_are_dropped(tmp_path: Path) -> None:
    info = file_info("f", b"x")
    info.mode = 0o6777
    unpacked(built((info, b"x")), tmp_path / "out")
    assert (tmp_path / "out/f").stat().st_mode & 0o7022 == 0


def test_an_archive_of_the_folder_itself_unpacks_like_one_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "pkg"
    (folder / "sub").mkdir(parents=True)
    (folder / "main.py").write_text("print(1)")
    (folder / "sub" / "a.txt").write_text("a")
    packed = tmp_path / "code.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder, ".")
    with packed.open("rb") as source:
        names = unpack(source, tmp_path / "out", max_bytes=1000, max_files=10)
    assert names == ["main.py", "sub/a.txt"]


def test_the_folder_itself_is_named_once(tmp_path: Path) -> None:
    top = (info_of("./", tarfile.DIRTYPE), b"")
    with pytest.raises(BadArchive, match="there twice"):
        unpacked(built(top, top, a_file("f")), tmp_path / "out")
    assert unpacked(built(top, a_file("f")), tmp_path / "out") == ["f"]
