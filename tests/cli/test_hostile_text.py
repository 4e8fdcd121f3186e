"""Text of other users, of programs and of servers does not command the terminal of whoever lists it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob

from crucible.cli.command_table import COMMANDS
from crucible.cli.output.escape import escape_block
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret

pytestmark = pytest.mark.enable_socket

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202e\u200b\nowned"
KEPT = frozenset(
    [
        "id",
        "short",
        "job",
        "attempt",
        "machine",
        "project",
        "kind",
        "form",
        "state",
        "phase",
        "status",
        "desired",
        "level",
        "verdict",
        "outcome",
        "market",
        "role",
        "via",
        "markets",
        "sha256",
        "hash",
        "code",
        "type",
        "types",
        "events",
        "event",
        "format",
        "cursor",
        "next",
        "version",
        "api_version",
        "size",
        "market",
        "sort",
        "goal",
    ]
)
"""Keys whose values are ids, numbers or words of ours."""

LISTED = {
    "status": (("status",), ("status", "JOB")),
    "jobs": (("jobs",),),
    "health": (("health", "JOB"),),
    "check": (("check", "JOB"),),
    "compare": (("compare", "JOB", "OTHER", "--all"),),
    "events": (("events", "JOB"),),
    "tag": (("tag", "JOB"),),
    "note": (("note", "JOB"), ("note", "JOB", "--delete", "NOTE")),
    "rename": (("rename", "JOB", "new"),),
    "checkpoints": (("checkpoints", "JOB"),),
    "backends": (("backends",),),
    "catalog": (("catalog",), ("catalog", "show", "t3.micro"), ("catalog", "audit")),
    "machines": (("machines",),),
    "users": (("users",),),
    "projects": (("projects",), ("projects", "members", "default")),
    "tokens": (("tokens",), ("tokens", "create", "robot")),
    "secrets": (("secrets",),),
    "notifications": (("notifications",), ("notifications", "show", "HOOK")),
    "share": (("share", "JOB"),),
    "audit": (("audit",),),
    "whoami": (("whoami",),),
}
ELSEWHERE = frozenset(
    [
        "run",
        "train",
        "infer",
        "benchmark",
        "plan",
        "logs",
        "attach",
        "exec",
        "resume",
        "rerun",
        "client",
        "download",
        "metrics",
        "ports",
        "cancel",
        "prune",
        "predictions",
        "tiers",
        "templates",
        "models",
        "db",
        "login",
        "logout",
        "config",
        "init",
        "completion",
        "up",
        "down",
        "doctor",
    ]
)
"""Commands that print a program's output, ids and numbers, or what this computer has."""


class HostileAnswers:
    """A server all of whose texts are hostile."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {}
        body = b""

        async def change(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            with contextlib.suppress(ValueError):
                body = json.dumps(_hostile(json.loads(body))).encode()
            headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, change if scope["type"] == "http" else send)


def _hostile(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _hostile(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_hostile(item, key) for item in value]
    ours = key in KEPT or key.endswith(("_at", "_id")) or key in ("at", "oldest", "newest", "date")
    return value if ours or not isinstance(value, str) else value + HOSTILE


@pytest.fixture
def job(real: RealServer) -> RunningJob:
    job = real.start(name="mine", tags=("draft",))
    real.run(job.checkpoint, "step_100", b"x" * 10, 100)
    real.run(job.progress, message="loading")
    real.run(job.points, loss=[1.0, 2.0, 3.0])
    real.run(job.write, b"line\n")
    real.run(job.end, 1)
    return job


def test_every_command_is_tried_or_named() -> None:
    assert {row.name for row in COMMANDS} == set(LISTED) | ELSEWHERE


def test_no_command_passes_hostile_text_on(cli: Cli, real: RealServer, job: RunningJob) -> None:
    note = cli("note", job.id, "a note", "--json").json["id"]
    hook = cli("notifications", "add", "https://93.184.216.34/hook", "--json").json["id"]
    cli("users", "add", "ada")
    cli("projects", "grant", "default", "ada", "member")
    cli("tokens", "create", "robot")
    real.run(real.app.control.secrets.set, OWNER, "default", "KEY", Secret("value"))
    other = real.start(name="other")
    real.app = dataclasses.replace(real.app, api=HostileAnswers(real.app.api))  # type: ignore[arg-type]
    names = {"JOB": job.id, "OTHER": other.id, "HOOK": hook, "NOTE": note}
    for line in (line for lines in LISTED.values() for line in lines):
        for flags in ((), ("--json",), ("-q",)):
            ran = cli(*(names.get(word, word) for word in line), *flags)
            assert ran.out == escape_block(ran.out), line
            assert ran.err == escape_block(ran.err), line
            assert flags or "owned" in ran.out + ran.err, line
