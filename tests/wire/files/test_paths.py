from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.wire.files.paths import UnsafePath, is_inside, safe_join, safe_name

UNSAFE = {
    "": "is empty",
    "/etc/passwd": "is an absolute path",
    "//server/share": "is an absolute path",
    "C:/Windows": "begins with a drive letter",
    "c:file": "begins with a drive letter",
    "..": "has '..' in it",
    "../x": "has '..' in it",
    "a/../../x": "has '..' in it",
    "a/..": "has '..' in it",
    "a\\..\\x": "has a backslash in it",
    "\\\\server\\share": "has a backslash in it",
    "a\x00b": "has a NUL byte in it",
    "a\nb": "has a control character in it",
    "a\x1b[2Jb": "has a control character in it",
    "a\x7f": "has a control character in it",
    "a//b": "has an empty part or '.' in it",
    "a/": "has an empty part or '.' in it",
    "./a": "has an empty part or '.' in it",
    ".": "has an empty part or '.' in it",
    "\udcff": "is not valid UTF-8",
    "x" * 256: "has a part longer than 255 bytes",
    "é" * 128: "has a part longer than 255 bytes",
    "/".join(["x" * 200] * 6): "is longer than 1024 bytes",
}


@pytest.mark.parametrize(("name", "why"), UNSAFE.items(), ids=lambda value: ascii(value)[:30])
def test_an_unsafe_name_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(UnsafePath) as caught:
        safe_name(name)
    assert caught.value.name == name
    assert caught.value.why == why
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name", ["a", "a/b.txt", "..a", "a..b/...", ".hidden", "a b", "naïve/数据.csv", "~/x", "x" * 255]
)
def test_a_plain_relative_name_is_safe(name: str, tmp_path: Path) -> None:
    assert safe_name(name) == name
    assert safe_join(tmp_path, name) == tmp_path / name
    assert safe_join(str(tmp_path), name) == tmp_path / name


@given(st.text(st.characters() | st.sampled_from("./\\:~\x00 "), max_size=40))
def test_whatever_the_name_the_path_stays_inside(name: str) -> None:
    root = "/nowhere/root"
    try:
        joined = safe_join(root, name)
    except UnsafePath:
        return
    assert os.path.normpath(joined) == f"{root}/{name}"


def test_links_that_lead_out_are_refused_and_others_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    (root / "sub" / "up").symlink_to("../..")
    (root / "within").symlink_to("sub")
    (root / "dangling").symlink_to("/no/such/place")
    (root / "rooted").symlink_to(tmp_path / "root-two")
    for name in ("out", "out/x", "sub/up/x", "dangling", "rooted/x"):
        with pytest.raises(UnsafePath, match="leads out of its folder through a link"):
            safe_join(root, name)
    assert safe_join(root, "within/new") == root / "within" / "new"


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    assert safe_join(tmp_path / "alias", "x") == tmp_path / "alias" / "x"


def test_inside_is_decided_by_parts_and_not_by_letters(tmp_path: Path) -> None:
    assert is_inside(tmp_path / "a", tmp_path / "a" / "b")
    assert is_inside(tmp_path / "a", tmp_path / "a")
    assert not is_inside(tmp_path / "a", tmp_path / "ab")
    assert is_inside("/", "/etc")
