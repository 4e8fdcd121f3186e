from __future__ import annotations

import pytest

from crucible.wire.files.ignore import BUILT_IN, IgnoreRules


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/down/a.log", True),
        ("*.log", "a.log.txt", False),
        ("/a.log", "a.log", True),
        ("/a.log", "sub/a.log", False),
        ("sub/*.bin", "sub/x.bin", True),
        ("sub/*.bin", "sub/deep/x.bin", False),
        ("sub/*.bin", "other/sub/x.bin", False),
        ("sub/**", "sub/deep/x.bin", True),
        ("sub/**", "sub", False),
        ("**/cache", "a/b/cache", True),
        ("**/cache", "cache", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "b/a/z", False),
        ("**", "anything/at/all", True),
        ("run?", "run1", True),
        ("run?", "run12", False),
        ("run[0-4]", "run3", True),
        ("run[!0-4]", "run3", False),
        ("# comment", "# comment", False),
        ("\\#odd", "#odd", True),
        ("\\!odd", "!odd", True),
        ("", "a", False),
        ("/", "a", False),
        ("space.txt  ", "space.txt", True),
        ("Data", "data", False),
    ],
)
def test_patterns(pattern: str, path: str, ignored: bool) -> None:
    assert IgnoreRules([pattern]).ignores(path) is ignored


def test_a_pattern_with_a_slash_at_its_end_means_folders() -> None:
    rules = IgnoreRules(["out/"])
    assert rules.ignores("out", is_folder=True)
    assert rules.ignores("a/out", is_folder=True)
    assert not rules.ignores("out")


def test_the_last_rule_that_matches_decides() -> None:
    rules = IgnoreRules(["*.pt", "!best.pt", "old/best.pt"])
    assert rules.ignores("epoch1.pt")
    assert not rules.ignores("best.pt")
    assert rules.ignores("old/best.pt")


def test_a_file_is_not_taken_back_from_an_ignored_folder() -> None:
    rules = IgnoreRules(["data/", "!data/keep.txt"])
    assert rules.ignores_on_the_way("data/keep.txt")
    assert not rules.ignores_on_the_way("other/keep.txt")


@pytest.mark.parametrize("name", [".git", "__pycache__", ".venv", "venv", "node_modules", ".ipynb_checkpoints"])
def test_what_nobody_wants_to_send_is_built_in(name: str) -> None:
    assert IgnoreRules(BUILT_IN).ignores(name, is_folder=True)
    assert IgnoreRules(BUILT_IN).ignores(f"deep/{name}", is_folder=True)
    assert not IgnoreRules([*BUILT_IN, f"!{name}"]).ignores(name, is_folder=True)


def test_a_pattern_of_many_stars_is_quick() -> None:
    assert not IgnoreRules(["/".join(["**", "a"] * 30)]).ignores("/".join(["a"] * 29 + ["b"] * 29))
