"""Requests that a generator of valid ones does not make. Each gets an answer that is documented and says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.authorisation.populated_app import token_of
from tests.authorisation.test_matrix import path_of
from tests.hostile.bodies import JSON, SOUND, VALUES, leaves, renamed, replaced, unreadable
from tests.hostile.likely_values import settled
from tests.hostile.recording_client import RecordingClient, SentRequest, recording_client
from tests.hostile.test_operations import ELSEWHERE, SAFE_TO_FAIL, entries, operations
from tests.server.openapi_contract import wrong_with_answer

from crucible.core.requests import DAY
from crucible.server.security.auth import OPEN_PATHS

SEGMENTS = (
    "%00",
    "a%00b",
    "%80",
    "%ED%A0%80",
    "%FF%FE",
    "%2e%2e",
    "..%2f..%2fetc",
    "%0d%0aX:%20y",
    "x" * 9000,
    "%25",
    "~",
    "%F0%9F%92%A5",
)
QUERIES = (
    "",
    "%00",
    "%80",
    "%ED%A0%80",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "9" * 5000,
    "-1",
    "true",
    "[]",
    "{}",
    "x" * 9000,
    "%0a",
    "1_000",
    "٣",
)
HEADERS: tuple[dict[str, str], ...] = (
    {"idempotency-key": "x" * 201},
    {"idempotency-key": "é"},
    {"idempotency-key": ""},
    {"range": "bytes=0-99999999999999999999999999"},
    {"range": "bytes=99999999999999999999999999-"},
    {"range": "bytes=-99999999999999999999999999"},
    {"range": "bytes=5-1"},
    {"range": "bytes=" + ",".join(["0-1"] * 2000)},
    {"range": "bytes=\x00-1"},
    {"range": "lines=1-2"},
    {"range": "bytes=٣-"},
    {"if-range": '"x"', "range": "bytes=0-"},
    {"if-none-match": "\x80"},
    {"if-none-match": '"' + "x" * 9000},
    {"x-request-id": "\x00"},
    {"cookie": "crucible_session=\x00; ; =; a"},
    {"cookie": "crucible_session=" + "x" * 9000},
    {"origin": "null"},
    {"origin": "http://[::1"},
    {"origin": "\x80"},
    {"host": "["},
    {"host": ""},
    {"host": "127.0.0.1:99999999"},
    {"accept": "\x00", "accept-encoding": "*;q=nan"},
    {"content-length": "-1"},
    {"content-length": "9" * 5000},
    {"content-length": "²"},
    {"expect": "100-continue", "transfer-encoding": "chunked"},
    {f"x-flood-{n}": "y" * 100 for n in range(500)},
)
GARBLED = ("", " ", "x", "Bearer", "\x00", "é", "crt_", "x" * 9000, "null", "../../token", "a b c")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RecordingClient]:
    with recording_client(tmp_path) as found:
        yield found


@pytest.fixture
def unchanged(request: pytest.FixtureRequest, label: str) -> Iterator[RecordingClient]:
    """A client for requests that change nothing; they share one app where possible."""
    found: RecordingClient = request.getfixturevalue("client" if keeps(label) else "shared_client")
    yield found
    found.assert_no_complaints()


@pytest.fixture
def read_client(request: pytest.FixtureRequest, label: str) -> RecordingClient:
    """The shared client for operations that only read; a separate one for operations that may change something."""
    found: RecordingClient = request.getfixturevalue("unchanged" if label.startswith("GET ") else "client")
    return found


def keeps(label: str) -> bool:
    """Something stays behind, whoever asks: of a sign-in, and where the address of a hook needs one to be made."""
    return label.split()[1] in OPEN_PATHS or "/login" in label or "{hook}" in label


def address(client: RecordingClient, label: str) -> str:
    method, path = label.split()
    return str(client.run(path_of(client.app, method, path.replace("{path}", "{path:path}"))))


def ask(client: RecordingClient, label: str, asked: SentRequest, identity: str = "owner") -> int:
    """The status; a complaint about one that is not documented."""
    answer = client.ask(asked, identity)
    if answer is None:
        return 0
    status = answer.status_code
    known = {int(code) for code in entries()[label].responses.status_codes if code.isdigit()}
    told = json.loads(answer.content) if status in (404, 405) and answer.content else {}
    if status not in known and told.get("code") not in ELSEWHERE:
        client.complain(f"{label} answers {status}, which is not documented", asked)
    if status < 300:
        for wrong in wrong_with_answer(label, status, answer.content):
            client.complain(wrong, asked)
    if status >= 500 and (label, status) not in SAFE_TO_FAIL:
        client.complain(f"{label} answers {status}: {answer.text[:500]}", asked)
    return status


def refused(client: RecordingClient, label: str, asked: SentRequest, what: str) -> None:
    status = ask(client, label, asked)
    if not 400 <= status < 500:
        client.complain(f"{label} takes {what} and answers {status}", asked)


FORMS = {"POST /login"}
"""What a browser fills in, and no JSON."""
WITH_BODIES = [label for label in operations() if label in SOUND]


def test_every_operation_with_a_body_has_a_sound_one() -> None:
    reads = {label for label, found in entries().items() if found.body and label not in FORMS}
    assert reads == set(WITH_BODIES)


NOT_HERE = {
    "POST /api/v1/models/{name}/jobs": 404,
    "POST /api/v1/db/backup": 422,
    "POST /api/v1/jobs/{id}/resume": 409,
    "POST /api/v1/training/{job_id}/resume": 409,
    "POST /api/v1/login": 401,
    "POST /api/v1/catalog/refresh": 422,
}
"""What this client says no to, having understood it."""


@pytest.mark.parametrize("label", WITH_BODIES)
def test_a_sound_body_is_understood(client: RecordingClient, label: str) -> None:
    client.run(settled(client.app))
    asked = SentRequest(label.split()[0], address(client, label), JSON, json.dumps(SOUND[label]).encode())
    status = ask(client, label, asked)
    if label in NOT_HERE:
        assert status == NOT_HERE[label]
    else:
        assert 200 <= status < 300, status


@pytest.mark.parametrize("label", WITH_BODIES)
def test_a_body_that_nobody_can_read_is_refused(unchanged: RecordingClient, label: str) -> None:
    method, url = label.split()[0], address(unchanged, label)
    for what, (body, headers) in unreadable().items():
        refused(unchanged, label, SentRequest(method, url, headers, body), what)


@pytest.mark.parametrize("label", WITH_BODIES)
def test_any_value_anywhere_in_a_body(client: RecordingClient, label: str) -> None:
    method, url, sound = label.split()[0], address(client, label), SOUND[label]
    for at in leaves(sound):
        for value in VALUES:
            ask(client, label, SentRequest(method, url, JSON, replaced(sound, at, value)))
        for name in ("a\x00b", "\ud800", "x" * 10_000, ""):
            ask(client, label, SentRequest(method, url, JSON, renamed(sound, at, name)))


@pytest.mark.parametrize("label", WITH_BODIES)
def test_a_key_that_is_there_twice_counts_once(client: RecordingClient, label: str) -> None:
    text = json.dumps(SOUND[label])
    for key in SOUND[label]:
        twice = text[:-1] + f', "{key}": "\\u0000"' + "}"
        ask(client, label, SentRequest(label.split()[0], address(client, label), JSON, twice.encode()))


@pytest.mark.parametrize("label", operations())
def test_any_address_and_query(read_client: RecordingClient, label: str) -> None:
    method, path = label.split()
    body = json.dumps(SOUND[label]).encode() if label in SOUND else b""
    headers = JSON if label in SOUND else {}
    for parameter in entries()[label].path_parameters:
        for segment in SEGMENTS:
            url = address(read_client, f"{method} {path.replace('{' + parameter.name + '}', '@')}").replace(
                "@", segment
            )
            ask(read_client, label, SentRequest(method, url, headers, body))
    url = address(read_client, label)
    for parameter in entries()[label].query:
        for value in QUERIES:
            ask(read_client, label, SentRequest(method, f"{url}?{parameter.name}={value}", headers, body))
        ask(read_client, label, SentRequest(method, url + "?" + "&".join([f"{parameter.name}=1"] * 300), headers, body))
    for query in ("%", "&&&", "=", "a" * 9000, "%00=%80", "\udcff"):
        ask(
            read_client, label, SentRequest(method, f"{url}?{query}".encode("utf-8", "replace").decode(), headers, body)
        )


@pytest.mark.parametrize("label", operations())
def test_any_header(read_client: RecordingClient, label: str) -> None:
    url = address(read_client, label)
    for headers in HEADERS:
        ask(read_client, label, SentRequest(label.split()[0], url, headers))


@pytest.mark.parametrize("label", operations())
def test_a_token_that_is_none_opens_nothing(unchanged: RecordingClient, label: str) -> None:
    method, path = label.split()
    url = address(unchanged, label)
    expired = unchanged.run(token_of(unchanged.app.control, "admin", days=1 / DAY))
    unchanged.app.harness.clock.time += 2
    for token in (*GARBLED, expired):
        status = ask(unchanged, label, SentRequest(method, url, {"authorization": f"Bearer {token}"}), "anonymous")
        if path not in OPEN_PATHS and status != 401:
            unchanged.complain(
                f"{label} answers {status} to somebody with the token {token[:20]!r}", SentRequest(method, url)
            )
