"""A NUL character and half a character, in every address and in every text of a body: no database is ever asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.bodies import JSON, SOUND, leaves, renamed, replaced
from tests.hostile.likely_values import settled
from tests.hostile.recording_client import RecordingClient, SentRequest, recording_client
from tests.hostile.test_operations import entries, operations
from tests.hostile.test_requests import WITH_BODIES, address, ask

TEXTS = ("a\x00b", "\ud800")
KEPT = (
    ("POST /api/v1/projects", "about"),
    ("POST /api/v1/tokens", "name"),
    ("POST /api/v1/tokens", "project"),
    ("POST /api/v1/tokens", "user"),
    ("POST /api/v1/jobs/{id}/share", "name"),
    ("POST /api/v1/jobs/{id}/notes", "text"),
    ("PATCH /api/v1/jobs/{id}", "name"),
    ("POST /api/v1/login", "name"),
)
"""Texts that stand in the database as they are, or are looked for there."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RecordingClient]:
    with recording_client(tmp_path) as found:
        found.run(settled(found.app))
        yield found


@pytest.mark.parametrize("label", operations())
@pytest.mark.parametrize("odd", ["%00", "a%00b"])
def test_in_an_address(request: pytest.FixtureRequest, label: str, odd: str) -> None:
    # To have the address of a hook one is made, and a project has room for few.
    client: RecordingClient = request.getfixturevalue("client" if "{hook}" in label else "shared_client")
    method, path = label.split()
    body = json.dumps(SOUND[label]).encode() if label in SOUND else b""
    names = [parameter.name for parameter in entries()[label].path_parameters]
    urls = [address(client, f"{method} {path.replace('{' + name + '}', '@')}").replace("@", odd) for name in names]
    for url in (*urls, f"{address(client, label)}?x={odd}", f"{address(client, label)}?{odd}=x"):
        assert ask(client, label, SentRequest(method, url, JSON if body else {}, body)) == 422, url
    client.assert_no_complaints()


@pytest.mark.parametrize("label", WITH_BODIES)
def test_in_a_body(client: RecordingClient, label: str) -> None:
    """Refused, or taken where it is kept as JSON: never an error of the server's own."""
    method, url, sound = label.split()[0], address(client, label), SOUND[label]
    for at in leaves(sound):
        for text in TEXTS:
            for body in (replaced(sound, at, text), renamed(sound, at, text)):
                assert ask(client, label, SentRequest(method, url, JSON, body)) < 500, (at, text)


@pytest.mark.parametrize(("label", "at"), KEPT)
def test_in_a_text_that_would_be_kept(client: RecordingClient, label: str, at: str) -> None:
    for text in TEXTS:
        asked = SentRequest(label.split()[0], address(client, label), JSON, replaced(SOUND[label], (at,), text))
        assert ask(client, label, asked) == 422, text
