"""A body that cannot be read: the answer says what is wrong with it, not that a field is."""

from __future__ import annotations

import gzip
from typing import Any

import httpx2
import pytest

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "headers", "what", "why"),
    [
        (b"{", JSON, "The body is not JSON.", "at character 1."),
        (b'{"command": nope}', JSON, "The body is not JSON.", "Expecting value, at character 12."),
        (b"\xff", JSON, "The body cannot be read.", "It is not UTF-8."),
        (b"[" * 10_000 + b"]" * 10_000, JSON, "The body cannot be read.", "It is nested too deeply."),
        (b"1" * 10_000, JSON, "The body cannot be read.", "A number in it has too many digits."),
        (b"{}", {"Content-Type": "text/plain"}, "The Content-Type is not JSON.", "'text/plain'"),
        (b"{}", {}, "The Content-Type is not JSON.", "It has no Content-Type."),
        (
            gzip.compress(b"{}"),
            {**JSON, "Content-Encoding": "gzip"},
            "The body cannot be read.",
            "'gzip' is not supported.",
        ),
        (b"nope", {**JSON, "Content-Encoding": "br"}, "The body is not JSON.", "'br' is not supported."),
    ],
    ids=["half", "word", "bytes", "deep", "digits", "text", "untyped", "gzip", "brotli"],
)
async def test_what_is_wrong_with_it_is_said(
    client: httpx2.AsyncClient, body: bytes, headers: dict[str, str], what: str, why: str
) -> None:
    answer = await client.post("/api/v1/jobs", content=body, headers=headers)
    told = answer.json()
    assert (answer.status_code, told["code"], told["detail"]) == (400, "broken_request", what)
    assert why in told["why"]
    assert "Content-Type: application/json" in told["fix"]


async def test_json_of_the_wrong_form_is_told_by_its_fields(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/jobs", json={"command": 1})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "command")


def test_what_a_body_can_lead_to_is_documented(document: Any) -> None:
    reading = [told for item in document["paths"].values() for told in item.values() if "requestBody" in told]
    assert len(reading) > 20
    assert all({"400", "413"} <= told["responses"].keys() for told in reading)


@pytest.mark.parametrize("length", ["1001", "9" * 30, "9" * 5000])
async def test_a_length_of_any_size_is_understood(client: httpx2.AsyncClient, length: str) -> None:
    answer = await client.put(f"/api/v1/bundles/{'0' * 64}", content=b"x", headers={"Content-Length": length})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("length", ["-1", "²", "1e9", "x"])
async def test_a_length_that_is_none_counts_for_nothing(client: httpx2.AsyncClient, length: str) -> None:
    headers = [(b"content-length", length.encode("latin-1", "replace"))]
    answer = await client.put(f"/api/v1/bundles/{'0' * 64}", content=b"x", headers=headers)
    assert answer.status_code == 422


def test_a_new_secret_is_documented(document: Any) -> None:
    assert "201" in document["paths"]["/api/v1/projects/{project}/secrets/{name}"]["put"]["responses"]
