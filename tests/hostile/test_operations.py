"""Every operation of the API, asked what its OpenAPI entry allows and what it does not. It answers as documented."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests.authorisation.test_matrix import ROWS
from tests.hostile.likely_values import ODD, LikelyValues, Words, settled
from tests.hostile.recording_client import ELSEWHERE, HERE, RecordingClient, SentRequest, recording_client
from tests.scale import Record, Scale
from tests.server.openapi_contract import document

LONGEST = 5
KEPT = object()
"""In place of a value: the value itself."""
HIDDEN = frozenset({"GET /openapi.json"})
"""Not told of in the document: it is the document."""
SAFE_TO_FAIL = frozenset({("GET /readyz", 503)})
"""The one answer above 499 that is no failure: this app is never ready."""


def operations() -> list[str]:
    """From the table that has every route; sockets, and HEAD where GET tells of it, are no operations."""
    named = [row.replace("{path:path}", "{path}") for row in ROWS if not row.startswith("WS ")]
    twins = {row.replace("GET ", "HEAD ", 1) for row in named if row.startswith("GET ")}
    return [row for row in named if row not in HIDDEN | twins]


@lru_cache
def schema() -> Any:
    import schemathesis

    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    return schemathesis.openapi.from_dict(brief(document()), config=config)


def brief(value: Any) -> Any:
    """The document with shorter lists: a case of 500 jobs takes seconds to make, and shows no more than one of 5."""
    if isinstance(value, dict):
        short = {"maxItems": min(value["maxItems"], LONGEST)} if isinstance(value.get("maxItems"), int) else {}
        return {name: brief(item) for name, item in (value | short).items()}
    return [brief(item) for item in value] if isinstance(value, list) else value


@lru_cache
def entries() -> dict[str, Any]:
    return {found.ok().label: found.ok() for found in schema().get_all_operations()}


def cases(operation: Any, likely: LikelyValues) -> st.SearchStrategy[Any]:
    """Sound and unsound ones, with values that mean something mixed in."""
    from schemathesis import GenerationMode
    from schemathesis.generation.feedback import FeedbackSources

    # Without the constants that it finds in our own source, which take longer to mix in than all the rest.
    none = FeedbackSources()
    wrong = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE, feedback=none)
    sound = operation.as_strategy(generation_mode=GenerationMode.POSITIVE, feedback=none)
    has_input = bool(operation.body) or any(True for _ in operation.iter_parameters())
    return mixed(st.one_of(sound, wrong), likely) if has_input else sound


@st.composite
def mixed(draw: st.DrawFn, made: st.SearchStrategy[Any], likely: LikelyValues) -> Any:
    case = draw(made)
    for container in (case.path_parameters, case.query):
        for parameter in sorted(container or ()):
            word = draw(instead(likely.words(parameter), isinstance(container[parameter], str)))
            container[parameter] = container[parameter] if word is KEPT else word
    if isinstance(case.body, dict):
        case.body = changed(draw, case.body, likely)
    return case


@cache
def instead(known: Words, text: bool) -> st.SearchStrategy[Any]:
    """Of a value, one that means something, or `KEPT`. Made once: hypothesis looks at each that it has not seen."""
    given = [st.just(KEPT)] + ([word_of(known)] * 3 if known else [])
    return st.one_of(*given, word_of(ODD)) if text else st.one_of(*given)


@cache
def word_of(words: Words) -> st.SearchStrategy[Any]:
    return st.sampled_from(words)


def changed(draw: st.DrawFn, body: dict[str, Any], likely: LikelyValues) -> dict[str, Any]:
    """Fields, at every depth that matters, with values that mean something."""
    found = dict(body)
    for name, value in body.items():
        if isinstance(value, dict):
            found[name] = changed(draw, value, likely)
        elif likely.words(name) and draw(st.booleans()):
            word = draw(word_of(likely.words(name)))
            found[name] = [word] if isinstance(value, list) else word
    return found


def asked_of(case: Any) -> SentRequest:
    return as_asked(prepared_of(case))


def prepared_of(case: Any) -> Any:
    """The request as a client would send it; a case that none can send is dropped."""
    import requests

    names = ("method", "url", "headers", "params", "data", "json", "files", "cookies")
    try:
        given = case.as_transport_kwargs(base_url=HERE)
        return requests.Request(**{name: given[name] for name in names if name in given}).prepare()
    except (ValueError, UnicodeError):
        assume(False)  # no client can send it
        raise


def as_asked(prepared: Any) -> SentRequest:
    body = prepared.body or b""
    headers = {str(name).lower(): _text(value) for name, value in prepared.headers.items()}
    headers.pop("x-schemathesis-testcaseid", None)
    return SentRequest(prepared.method, prepared.url, headers, body.encode() if isinstance(body, str) else body)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def check(client: RecordingClient, operation: Any, case: Any, identity: str) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    prepared = prepared_of(case)
    asked = as_asked(prepared)
    answer = client.ask(asked, identity)
    if answer is None or _elsewhere(answer) or (operation.label, answer.status_code) in SAFE_TO_FAIL:
        return
    looks = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    try:
        case.validate_response(_answer_to(prepared, answer), checks=looks)
    except AssertionError as failed:
        client.complain(_why(failed), asked)
    except BaseExceptionGroup as failed:
        for one in failed.exceptions:
            client.complain(_why(one), asked)


def _answer_to(prepared: Any, answer: Any) -> Any:
    """As schemathesis has it. It would make one itself, and for that the request anew."""
    from schemathesis import Response

    headers = {name: [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, headers, answer.content, prepared, 0.0, verify=True, encoding=answer.encoding)


def _elsewhere(answer: Any) -> bool:
    """A parameter with a slash in it, or an empty one, makes the address another's."""
    return answer.status_code in (404, 405) and bool(answer.content) and answer.json().get("code") in ELSEWHERE


def _why(failed: BaseException) -> str:
    return re.sub(r"\s+", " ", f"{failed} {getattr(failed, 'message', '')}")[:400]


@pytest.mark.parametrize("label", operations())
def test_an_operation_answers_as_documented(label: str, tmp_path: Path, scale: Scale, record: Record) -> None:
    operation = entries()[label]
    with recording_client(tmp_path) as client:
        likely = client.run(settled(client.app))

        @settings(
            max_examples=scale.cases,
            derandomize=scale.cases <= 50,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases(operation, likely), identity=st.sampled_from(["owner", "admin"]))
        def ask(case: Any, identity: str) -> None:
            check(client, operation, case, identity)

        ask()
    asked = sum(client.statuses.values())
    unexpected = sum(count for status, count in client.statuses.items() if status >= 500)
    record("generated API cases", cases=asked, answers_above_499=unexpected)


def test_every_operation_is_asked() -> None:
    assert set(operations()) == set(entries())
