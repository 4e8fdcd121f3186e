"""The agents' listener. User code runs beside an agent and may hold its secret: what it sends is as hostile as any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.authorisation.populated_app import MODEL
from tests.control.harness import secret, sha
from tests.hostile.recording_client import RecordingClient, SentRequest, recording_client
from tests.hostile.test_operations import asked_of
from tests.hostile.test_requests import SEGMENTS
from tests.scale import Record, Scale

from crucible.server.agents.api import agent_files, attempts, build_agents_api, claims, code, machines
from crucible.wire.documents.messages import Cause, MessageKind, sign

OPERATIONS = (
    "POST /agent/v1/claim",
    "GET /agent/v1/machines/{machine}/desired",
    "GET /agent/v1/attempts/{attempt}/{rank}/desired",
    "GET /agent/v1/attempts/{attempt}/{rank}/secrets",
    "POST /agent/v1/attempts/{attempt}/{rank}/messages",
    "PUT /agent/v1/attempts/{attempt}/{rank}/logs/{n}",
    "POST /agent/v1/attempts/{attempt}/{rank}/tail",
    "PUT /agent/v1/attempts/{attempt}/{rank}/artifacts/{path}",
    "PUT /agent/v1/attempts/{attempt}/{rank}/checkpoints/{sha256}",
    "GET /agent/v1/attempts/{attempt}/{rank}/checkpoints/{sha256}",
    "GET /agent/v1/bundles/{sha256}",
    "GET /agent/v1/agent-{sha256}.pyz",
)


class Runner:
    """An attempt's agent that says what it likes, signed as it should be."""

    def __init__(self, client: RecordingClient) -> None:
        self.client = client
        self.app: FastAPI = build_agents_api(client.app.control.agents)
        self.attempt = client.run(client.app.harness.attempt(client.app.job)).id
        self.machine = client.run(client.app.harness.machine()).id
        self.secret = secret("attempt", self.attempt)

    def ask(self, asked: SentRequest, as_machine: bool = False) -> int:
        """No identity of the public API counts here; the bearer is the attempt's, or the machine's, own secret."""
        bearer = secret("machine", self.machine) if as_machine else self.secret
        headers = {"authorization": f"Bearer {bearer.decode()}", **asked.headers}
        answer = self.client.ask(SentRequest(asked.method, asked.url, headers, asked.body), "anonymous", self.app)
        if answer is not None and answer.status_code >= 500:
            self.client.complain(f"{asked.method} answers {answer.status_code}: {answer.text[:300]}", asked)
        return 0 if answer is None else answer.status_code

    def say(self, body: bytes) -> int:
        signed = sign(body, self.secret).encode() + b"\n" + body
        return self.ask(SentRequest("POST", f"/agent/v1/attempts/{self.attempt}/0/messages", body=signed))

    @property
    def acked(self) -> int:
        rows = self.client.run(self.client.app.harness.rows(_slots()))
        return int(next(row["acked"] for row in rows if row["attempt"] == self.attempt))

    def batch(self, messages: list[Any]) -> bytes:
        return json.dumps({"v": 1, "attempt": self.attempt, "rank": 0, "messages": messages}).encode()


def _slots() -> Any:
    from crucible.control.db import schema

    return schema.slots


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with recording_client(tmp_path) as client:
        yield Runner(client)


@lru_cache
def entries() -> dict[str, Any]:
    import schemathesis

    app = FastAPI()
    app.router.routes.extend(
        route for router in (claims, machines, attempts, code, agent_files) for route in router.routes
    )
    document = get_openapi(title="agents", version="1", routes=app.routes)
    found = schemathesis.openapi.from_dict(document)
    return {operation.ok().label: operation.ok() for operation in found.get_all_operations()}


def test_every_route_of_agents_is_asked() -> None:
    assert set(entries()) == set(OPERATIONS)


@pytest.mark.parametrize("label", OPERATIONS)
def test_a_route_of_agents_never_fails(label: str, runner: Runner, scale: Scale, record: Record) -> None:
    from schemathesis import GenerationMode
    from schemathesis.generation.feedback import FeedbackSources

    entry = entries()[label]
    sound, wrong = (entry.as_strategy(generation_mode=mode, feedback=FeedbackSources()) for mode in GenerationMode)
    real = {"attempt": runner.attempt, "rank": 0, "machine": runner.machine, "sha256": sha(MODEL), "path": "a/b"}

    @settings(
        max_examples=scale.cases,
        derandomize=scale.cases <= 50,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(sound, wrong), kept=st.sets(st.sampled_from(sorted(real))), body=st.binary(max_size=2000))
    def ask(case: Any, kept: set[str], body: bytes) -> None:
        for container in (case.path_parameters, case.query):
            container.update({name: real[name] for name in real if name in container and name not in kept})
        asked = asked_of(case)
        if case.query.get("wait"):
            return  # a long poll that nobody answers
        headers = {name: value for name, value in asked.headers.items() if name != "content-length"}
        runner.ask(SentRequest(asked.method, asked.url, headers, asked.body or body), "/machines/" in label)

    ask()
    record("generated cases for agents", cases=sum(runner.client.statuses.values()), answers_above_499=0)


@pytest.mark.parametrize("label", OPERATIONS)
def test_any_address_of_an_agent(label: str, runner: Runner) -> None:
    method, path = label.split()
    real = {
        "attempt": runner.attempt,
        "rank": "0",
        "machine": runner.machine,
        "sha256": sha(MODEL),
        "n": "0",
        "path": "a",
    }
    for name in real:
        for segment in SEGMENTS if "{" + name + "}" in path else ():
            filled = {**real, name: segment}
            url = path.replace("{" + name + "}", segment)
            for other, value in filled.items():
                url = url.replace("{" + other + "}", value)
            headers = {"x-content-sha256": sha(b"data"), "x-crucible-devices": segment}
            runner.ask(SentRequest(method, f"{url}?start=0&lines=0&attempt={runner.attempt}", headers, b"data"))


WORDS = st.sampled_from(
    ["", "a\x00b", "\ud800", "x" * 5000, "../../etc", "loss", "file", "folder", "latest", "exit", "é"]
)
NUMBERS = st.sampled_from(
    [
        0,
        -1,
        1,
        2**31,
        2**53,
        2**63 - 1,
        2**63,
        -(2**63),
        10**400,
        0.5,
        1e308,
        5e-324,
        float("nan"),
        float("inf"),
        float("-inf"),
    ]
)
LEAVES = st.one_of(WORDS, NUMBERS, st.none(), st.booleans(), st.text(max_size=20), st.integers(), st.floats())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | WORDS, inner, max_size=4),
    max_leaves=8,
)
POINT = st.lists(LEAVES, min_size=3, max_size=3) | VALUES
KNOWN = {
    "what": VALUES,
    "pid": VALUES,
    "command": VALUES,
    "agent": VALUES,
    "series": st.dictionaries(st.text(max_size=5) | WORDS, st.lists(POINT, max_size=4), max_size=4) | VALUES,
    "fraction": VALUES,
    "epoch": VALUES,
    "loss": VALUES,
    "message": VALUES,
    "n": VALUES,
    "start": VALUES,
    "end": VALUES,
    "lines": VALUES,
    "sha256": VALUES | st.just(sha(MODEL)) | st.just(sha(MODEL)[:-1] + "\x00"),
    "path": VALUES | st.just("model.pt"),
    "size": VALUES | st.just(len(MODEL)),
    "name": VALUES | st.just("step_2.pt"),
    "form": VALUES | st.just("file"),
    "step": VALUES,
    "metric": VALUES | st.fixed_dictionaries({"name": VALUES, "value": VALUES}),
    "kind": VALUES | st.just("value"),
    "value": VALUES,
    "seconds": VALUES,
    "text": VALUES,
    "code": VALUES,
    "signal": VALUES,
    "cause": VALUES | st.sampled_from([cause.value for cause in Cause]),
    "complete": VALUES,
}
"""All that some kind of message has."""
BY_KIND = {
    MessageKind.LOG: ("n", "start", "end", "lines", "sha256"),
    MessageKind.ARTIFACT: ("path", "size", "sha256"),
    MessageKind.CHECKPOINT: ("name", "form", "size", "sha256", "step", "metric"),
    MessageKind.RESULT: ("kind", "value"),
    MessageKind.POINTS: ("series",),
}
ENDING = (MessageKind.EXITED.value, MessageKind.ENDED.value)


def data_of(kind: str) -> st.SearchStrategy[Any]:
    needed = {name: KNOWN[name] for name in BY_KIND.get(MessageKind(kind), ())}
    others = {name: strategy for name, strategy in KNOWN.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional={name: others[name] for name in sorted(others)})


KINDS = [kind.value for kind in MessageKind if kind.value not in ENDING]


@pytest.mark.parametrize("kind", [kind.value for kind in MessageKind])
def test_whatever_an_agent_says_is_stored_or_noted(kind: str, runner: Runner, scale: Scale) -> None:
    """Signed and numbered as it should be: it must be taken, or the runner would say it again for ever."""
    ended: list[str] = []

    @settings(max_examples=scale.cases, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=data_of(kind), at=NUMBERS.filter(lambda n: abs(n) < 10**300))
    def say(data: Any, at: float) -> None:
        n = runner.acked + 1
        status = runner.say(runner.batch([[n, kind, at, data], [n + 1, "note", 1.0, {"text": "well"}]]))
        if kind == MessageKind.ENDED.value and ended:
            assert status == 410, "a runner that has said its last word ends itself"
            return
        ended.append(kind)
        assert status == 200
        assert runner.acked == n + 1

    say()
    shown_after(runner)


def shown_after(runner: Runner) -> None:
    """All that people see of the job can still be shown."""
    job = runner.client.app.job
    for path in ("", "/events", "/metrics", "/logs", "/artifacts", "/checkpoints", "/health", "/logs/search?q=a"):
        answer = runner.client.ask(SentRequest("GET", f"/api/v1/jobs/{job}{path}"))
        assert answer is not None
        assert answer.status_code == 200, answer.text
    assert runner.client.ask(SentRequest("GET", f"/api/v1/training/{job}")) is not None


BATCHES = st.one_of(
    st.binary(max_size=500),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {"v": VALUES | st.just(1), "attempt": VALUES, "rank": VALUES, "messages": st.lists(VALUES, max_size=3) | VALUES}
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"", b"[" * 100_000, b'{"v":1,"attempt":"a","rank":' + b"9" * 5000 + b',"messages":[]}']),
)


def test_a_batch_that_is_none_is_refused(runner: Runner, scale: Scale) -> None:
    @settings(max_examples=scale.cases * 4, derandomize=True, database=None)
    @given(body=BATCHES)
    def say(body: bytes) -> None:
        assert 400 <= runner.say(body) < 500

    say()
    unsigned = SentRequest("POST", f"/agent/v1/attempts/{runner.attempt}/0/messages", body=runner.batch([]))
    assert 400 <= runner.ask(unsigned) < 500
