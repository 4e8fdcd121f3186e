from __future__ import annotations

from pathlib import Path

import pytest

from crucible.client.server import logins
from crucible.client.server.logins import Login, Logins
from crucible.core.errors import BadInput, RefusedByPolicy

HERE, THERE = "http://127.0.0.1:1", "https://crucible.example.org"
ADA = Login("ada", "crt_secret", "2026-12-01T00:00:00Z")


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config" / "logins.json"
    kept = Logins({}).with_login(THERE, ADA).with_login(HERE, Login("bob", "crt_other"))
    logins.save(path, kept)
    assert logins.load(path) == kept
    assert kept.current == HERE
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_could_read_is_replaced_by_one_that_they_cannot(tmp_path: Path) -> None:
    path = tmp_path / "logins.json"
    path.write_text("{}")
    path.chmod(0o644)
    logins.save(path, Logins({THERE: ADA}))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_token_goes_to_its_own_server_alone() -> None:
    known = Logins({THERE: ADA}, THERE)
    assert known.token(THERE) is not None
    assert [known.token(url) for url in (HERE, f"{THERE}.evil.example", THERE.replace("https", "http"))] == [None] * 3


def test_what_is_forgotten() -> None:
    known = Logins({THERE: ADA, HERE: ADA}, THERE)
    assert known.without(THERE) == Logins({HERE: ADA}, None)
    assert known.without(HERE) == Logins({THERE: ADA}, THERE)


def test_no_file_is_no_login(tmp_path: Path) -> None:
    assert logins.load(tmp_path / "nothing.json") == Logins({})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"servers": 7}', '{"servers": {"a": {"user": 1}}}', "\x00"])
def test_a_broken_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "logins.json"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        logins.load(path)
    assert "log in again" in caught.value.fix


def test_the_token_is_not_printed() -> None:
    assert "crt_secret" not in repr(Logins({THERE: ADA}, THERE))


@pytest.mark.parametrize("url", [THERE, HERE, "http://localhost:8000", "http://[::1]:80"])
def test_ways_that_nobody_can_read(url: str) -> None:
    logins.check_encrypted(url)


@pytest.mark.parametrize("url", ["http://example.org", "http://10.0.0.1:80", "http://127.0.0.1.evil.example"])
def test_ways_that_others_can_read(url: str) -> None:
    with pytest.raises(RefusedByPolicy):
        logins.check_encrypted(url)
    logins.check_encrypted(url, insecure=True)
