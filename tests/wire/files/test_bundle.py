from __future__ import annotations

import hashlib
import os
import random
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.wire.files.archive import Entry, Folder, Link, unpack
from crucible.wire.files.bundle import DEFAULT_LIMIT, BundleTooLarge, collect, make_bundle
from crucible.wire.files.paths import UnsafePath


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def names(entries: list[Entry]) -> list[str]:
    return [entry.name for entry in entries]


def test_a_walk_takes_everything_but_what_is_ignored(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "train.py": "1",
            "pkg/model.py": "2",
            "pkg/__pycache__/model.pyc": "x",
            "pkg/stale.pyc": "x",
            ".git/config": "x",
            ".venv/bin/python": "x",
            "node_modules/a/b.js": "x",
            "data/big.bin": "x",
            "data/small.csv": "3",
            "notes.tmp": "x",
            ".crucibleignore": "data/*.bin\n# why not\n\nruns/\n",
            "runs/1/log": "x",
        },
    )
    (tmp_path / "out").mkdir()
    entries = collect(tmp_path, ignore=["*.tmp"])
    assert names(entries) == [".crucibleignore", "data/small.csv", "out", "pkg/model.py", "train.py"]
    assert entries[2].source == Folder()


def test_later_patterns_overrule_earlier_ones(tmp_path: Path) -> None:
    tree(tmp_path, {"venv/mine.py": "1", "a.log": "2", "b.log": "3", ".crucibleignore": "!venv\n*.log\n"})
    assert names(collect(tmp_path, ignore=["!b.log"])) == [".crucibleignore", "b.log", "venv/mine.py"]


def test_a_list_is_used_instead_of_walking(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {"a.py": "1", "b.py": "2", "sub/c.py": "3", "module/x/d.py": "4", "venv/e.py": "5", "f.bin": "6"},
    )
    tree(tmp_path, {".crucibleignore": "*.bin\n"})
    listed = ["sub/c.py", "a.py", "deleted.py", "a.py", "module/", "venv/e.py", "f.bin"]
    assert names(collect(tmp_path, only=listed)) == ["a.py", "module/x/d.py", "sub/c.py"]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "out/secret"])
def test_a_list_cannot_lead_out(name: str, tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"a.py": "1"})
    tree(tmp_path, {"secret": "s"})
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(UnsafePath) as caught:
        collect(root, only=[name])
    assert caught.value.name == name


def test_links_inside_are_kept_as_relative_ones(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"lib/a.py": "1", "lib/v1/b.py": "2"})
    (root / "abs.py").symlink_to(root / "lib/a.py")
    (root / "lib/v1/up").symlink_to("../a.py")
    (root / "current").symlink_to("lib/v1")
    (root / "round.py").symlink_to("../root/lib/a.py")
    (root / "gone").symlink_to("not/yet")
    links = {entry.name: entry.source for entry in collect(root) if isinstance(entry.source, Link)}
    assert links == {
        "abs.py": Link("lib/a.py"),
        "lib/v1/up": Link("../a.py"),
        "current": Link("lib/v1"),
        "round.py": Link("lib/a.py"),
        "gone": Link("not/yet"),
    }
    bundle = make_bundle(collect(root), tmp_path / "bundles")
    with bundle.path.open("rb") as file:
        unpack(file, tmp_path / "copy", max_bytes=100, max_files=100)
    assert (tmp_path / "copy/current/up").read_text() == "1"


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../elsewhere", "sub/../../x"])
def test_a_link_out_of_the_folder_is_refused_by_name(target: str, tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"sub/a.py": "1"})
    (root / "sub" / "ok").symlink_to("a.py")
    (root / "data").symlink_to(target)
    with pytest.raises(UnsafePath, match="outside the folder") as caught:
        collect(root)
    assert caught.value.name == "data"
    assert ".crucibleignore" in caught.value.why
    assert names(collect(root, ignore=["data"])) == ["sub/a.py", "sub/ok"]


def test_a_link_to_itself_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UnsafePath, match="leads to itself"):
        collect(tmp_path)


def test_sockets_and_pipes_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, {"a.py": "1"})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # a socket's name has to be short
        listener.bind("socket")
        assert names(collect(tmp_path)) == ["a.py"]


@pytest.mark.parametrize("name", ["bad\nname", "back\\slash", "C:drive"])
def test_a_file_no_archive_may_hold_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(UnsafePath) as caught:
        collect(tmp_path)
    assert caught.value.name == name


def test_too_much_is_refused_with_the_biggest_files(tmp_path: Path) -> None:
    tree(tmp_path, {f"f{n:02}": "x" * n for n in range(1, 15)})
    size = sum(range(1, 15))
    assert len(collect(tmp_path, limit_bytes=size)) == 14
    with pytest.raises(BundleTooLarge, match=r"f14 \(14 bytes\)") as caught:
        collect(tmp_path, limit_bytes=size - 1)
    assert (caught.value.size, caught.value.limit) == (size, size - 1)
    assert caught.value.biggest[:2] == [("f14", 14), ("f13", 13)]
    assert len(caught.value.biggest) == 10
    assert DEFAULT_LIMIT == 500_000_000


def test_a_bundle_is_named_by_the_hash_of_its_bytes(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"train.py": "print(1)"})
    bundle = make_bundle(collect(root), tmp_path / "bundles")
    data = bundle.path.read_bytes()
    assert bundle.sha256 == hashlib.sha256(data).hexdigest()
    assert bundle.size == len(data)
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == [f"{bundle.sha256}.tar.gz"]


def test_a_failed_bundle_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_bundle([Entry("gone", tmp_path / "gone", 5)], tmp_path / "bundles")
    assert list((tmp_path / "bundles").iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(
    files=st.dictionaries(
        st.from_regex(r"[a-c]{1,2}|[g-i]/[d-f]{1,2}", fullmatch=True), st.binary(max_size=300), max_size=8
    ),
    seed=st.integers(),
)
def test_the_same_content_is_the_same_bundle_whatever_order_and_times(
    files: dict[str, bytes], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    top = tmp_path_factory.mktemp("same")
    hashes = set()
    for copy in ("one", "two"):
        (top / copy).mkdir()
        for name in rng.sample(sorted(files), len(files)):
            (top / copy / name).parent.mkdir(exist_ok=True)
            (top / copy / name).write_bytes(files[name])
            os.utime(top / copy / name, (rng.randint(0, 2**31), rng.randint(0, 2**31)))
        hashes.add(make_bundle(collect(top / copy), top / f"{copy}-bundles").sha256)
    assert len(hashes) == 1
