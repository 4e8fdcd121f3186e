from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import make_payload
from crucible.client.payload.git import looks_like_git, parse_address
from crucible.core.errors import BadInput
from crucible.core.job.spec import SourceKind


@pytest.fixture
def repository(folder: Path, git: Git) -> str:
    """A repository with a branch `main` and a tag `v1` before its last commit."""
    git("init", "-q")
    (folder / "main.py").write_text("print('one')\n")
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    (folder / "main.py").write_text("print('two')\n")
    git("commit", "-qam", "two")
    return folder.as_uri()


def test_an_address_is_fetched_and_run_like_a_directory(repository: str, ask: Ask, git: Git) -> None:
    payload = make_payload(repository, ask(arguments=("x",)))
    assert payload.command == ("{python}", "main.py", "x")
    assert names(payload) == ["main.py"]
    assert payload.source.kind is SourceKind.GIT
    assert (payload.source.url, payload.source.commit) == (repository, git("rev-parse", "HEAD"))


@pytest.mark.parametrize("how", ["in the address", "by option"])
def test_a_ref_may_be_named(repository: str, ask: Ask, git: Git, how: str) -> None:
    target, ref = (f"{repository}@v1", None) if how == "in the address" else (repository, "v1")
    payload = make_payload(target, ask(ref=ref))
    assert payload.source.commit == git("rev-parse", "v1")
    assert payload.source.ref == "v1"


@pytest.mark.parametrize("length", [40, 10])
def test_a_ref_may_be_a_commit(repository: str, ask: Ask, git: Git, length: int) -> None:
    commit = git("rev-parse", "v1")
    assert make_payload(repository, ask(ref=commit[:length])).source.commit == commit


def test_a_ref_nobody_knows_is_bad_input(repository: str, ask: Ask) -> None:
    with pytest.raises(BadInput, match="cannot be fetched"):
        make_payload(repository, ask(ref="nosuch"))


def test_a_repository_that_is_not_there_is_bad_input(tmp_path: Path, ask: Ask) -> None:
    with pytest.raises(BadInput, match="cannot be fetched"):
        make_payload((tmp_path / "nosuch").as_uri(), ask())


@pytest.mark.parametrize(
    ("text", "url", "ref"),
    [
        ("https://example.org/a/b.git", "https://example.org/a/b.git", None),
        ("https://example.org/a/b@feature/x", "https://example.org/a/b", "feature/x"),
        ("https://me@example.org/a/b@v1", "https://me@example.org/a/b", "v1"),
        ("git+https://example.org/a/b@v1", "https://example.org/a/b", "v1"),
        ("git@example.org:a/b.git@main", "git@example.org:a/b.git", "main"),
        ("ssh://git@example.org:22/a/b.git", "ssh://git@example.org:22/a/b.git", None),
    ],
)
def test_addresses(text: str, url: str, ref: str | None) -> None:
    assert looks_like_git(text)
    address = parse_address(text)
    assert (address.url, address.ref) == (url, ref)


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c touch% /tmp/x",
        "http://example.org/a",
        "fd::17/foo",
        "ftp://example.org/a",
        "ssh://-oProxyCommand=x/a",
        "https://",
        "https://example.org",
        "s3://bucket/x",
    ],
)
def test_other_transports_are_refused(text: str, ask: Ask) -> None:
    with pytest.raises(BadInput, match="not a git address"):
        make_payload(text, ask())


@pytest.mark.parametrize("ref", ["--upload-pack=x", "-x", "a..b", "a b", "a:b", "a\nb"])
def test_a_ref_can_be_no_option(ref: str) -> None:
    with pytest.raises(BadInput, match="not a branch"):
        parse_address("https://example.org/a/b", ref)


@pytest.mark.parametrize("text", ["train.py", "./dir", "a@b", "C:/x"])
def test_paths_are_no_addresses(text: str) -> None:
    assert not looks_like_git(text)


def test_in_place_makes_no_sense_here(repository: str, ask: Ask) -> None:
    with pytest.raises(BadInput, match="in place"):
        make_payload(repository, ask(in_place=True))


def test_a_repository_that_is_too_large_is_not_fetched(folder: Path, ask: Ask, git: Git, tmp_path: Path) -> None:
    git("init", "-q")
    (folder / "main.py").write_text("print(1)\n")
    for number in range(120):  # so many that they come as one pack
        (folder / f"data-{number}.bin").write_bytes(random.Random(number).randbytes(20_000))
    git("add", ".")
    git("commit", "-qm", "big")
    with pytest.raises(BadInput, match="too large to be fetched"):
        make_payload(folder.as_uri(), ask(limit=500_000))


def test_without_git_it_says_how_to_get_it(repository: str, ask: Ask, tmp_path: Path) -> None:
    request = ask()
    nowhere = replace(request.host, environ={**request.host.environ, "PATH": str(tmp_path)})
    with pytest.raises(BadInput, match="git is not installed"):
        make_payload(repository, replace(request, host=nowhere))


def test_it_is_fetched_whatever_repository_the_environment_names(repository: str, ask: Ask, git: Git) -> None:
    """As it does in a git hook."""
    source = ask()
    environ = {**source.host.environ, "GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere"}
    payload = make_payload(repository, replace(source, host=replace(source.host, environ=environ)))
    assert payload.source.commit == git("rev-parse", "HEAD")
