"""Hooks from Python: what each method asks for, and how its answer is read."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from crucible.client.api.people import Hooks
from crucible.core.errors import Trouble
from crucible.core.hooks import HookEvent, HookFormat

URL = "https://hooks.example/x"
DELIVERY = {"id": "msg_1", "type": "ping", "outcome": "delivered", "status": 200, "answer": "thanks"}
HOOK = {
    "id": "hook-01m7kxz5vsdksz4fbbhqtbmwj3",
    "project": "vision",
    "url": URL,
    "events": ["failed"],
    "state": "failing",
    "enabled": True,
    "failures": 2,
    "last": {**DELIVERY, "outcome": "failed", "status": None, "answer": "nobody answers"},
}
BELOW = "/api/v1/projects/vision/hooks"


class Line:
    """A transport that answers with what a test gave it, and keeps what it was asked."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        self.asked.append((method, path, more.get("body") or more.get("query")))
        return httpx2.Response(200, json=self._answer)


def hooks(answer: object) -> tuple[Hooks, Line]:
    line = Line(answer)
    return Hooks(line), line  # type: ignore[arg-type]


def test_the_list_says_how_each_does() -> None:
    found, line = hooks({"items": [HOOK]})
    (hook,) = found.list_hooks("vision")
    assert (hook.state, hook.failures, hook.last and hook.last.answer) == ("failing", 2, "nobody answers")
    assert line.asked == [("GET", BELOW, None)]


def test_a_new_one_comes_with_its_secret_which_is_not_printed() -> None:
    found, line = hooks({**HOOK, "secret": "whsec_abc"})
    made = found.add("vision", URL, events=[HookEvent.FAILED, "started"], format=HookFormat.SLACK)
    assert made.secret == "whsec_abc"
    assert "whsec_abc" not in repr(made)
    assert made.as_json()["secret"] == "whsec_abc"
    assert line.asked == [("POST", BELOW, {"url": URL, "events": ["failed", "started"], "format": "slack"})]


def test_without_a_secret_there_is_no_word_of_one() -> None:
    found, _line = hooks(HOOK)
    assert "secret" not in found.get("vision", "tbmwj3").as_json()


def test_a_change_names_what_changes_and_nothing_else() -> None:
    found, line = hooks(HOOK)
    found.change("vision", "tbmwj3", enabled=False)
    found.change("vision", "tbmwj3", url=URL, events=["failed"])
    assert [body for _method, _path, body in line.asked] == [{"enabled": False}, {"url": URL, "events": ["failed"]}]


def test_the_others_go_where_they_should() -> None:
    found, line = hooks({**HOOK, **DELIVERY, "items": [DELIVERY]})
    found.rotate("vision", "abc")
    assert found.test("vision", "abc").delivered
    assert [one.status for one in found.deliveries("vision", "abc", limit=5)] == [200]
    found.remove("a/b", "c d")
    assert [(method, path) for method, path, _ in line.asked] == [
        ("POST", f"{BELOW}/abc/rotate"),
        ("POST", f"{BELOW}/abc/test"),
        ("GET", f"{BELOW}/abc/deliveries"),
        ("DELETE", "/api/v1/projects/a%2Fb/hooks/c%20d"),
    ]
    assert line.asked[2][2] == {"limit": 5}


def test_an_answer_that_is_none_is_told() -> None:
    with pytest.raises(Trouble):
        hooks({"items": [{}]})[0].list_hooks("vision")
