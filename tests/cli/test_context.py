"""What cannot be taken back is asked about."""

from __future__ import annotations

import sys

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer

pytestmark = pytest.mark.enable_socket

ASKING = [
    (("secrets", "remove", "HF_TOKEN", "--project", "alpha"), "Remove HF_TOKEN from alpha?"),
    (("users", "disable", "ada"), "Disable ada?"),
    (("tokens", "revoke", "tok-1", "tok-2"), "Revoke tok-1, tok-2?"),
    (("projects", "remove", "alpha", "ada"), "Remove ada from alpha?"),
]


@pytest.mark.parametrize(("words", "question"), ASKING)
def test_without_a_terminal_it_is_refused_with_the_way(
    cli: Cli, real: RealServer, words: tuple[str, ...], question: str
) -> None:
    ran = cli(*words)
    assert ran.code == 2
    assert f"Not confirmed: {question}" in ran.err
    assert "Fix: Add --yes" in ran.err
    assert real.sent == []


@pytest.mark.parametrize(("words", "question"), ASKING)
def test_on_a_terminal_no_is_an_answer(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], question: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, **_more: asked.append(text))
    assert cli(*words).code == 1
    assert (asked, real.sent) == ([question], [])
