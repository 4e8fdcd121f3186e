"""A client that checks every response of a populated app and records what is wrong, with the request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from fastapi import FastAPI
from structlog.processors import format_exc_info
from structlog.testing import capture_logs
from tests.authorisation.populated_app import PopulatedApp, populate, token_of
from tests.control.harness import give_back, make_harness

from crucible.core.people.identity import OWNER
from crucible.core.requests import UserChange
from crucible.server.http.problems import MEDIA_TYPE
from crucible.server.security import rate_limits

T = TypeVar("T")
HERE = "http://127.0.0.1"
FREE = rate_limits.Rate(1e9, 10**9)
"""No rate limit: a 429 would hide what a request would otherwise cause."""
USUAL = ((b"accept", b"*/*"), (b"accept-encoding", b"gzip, deflate"), (b"user-agent", b"tests"))
"""Headers that every client sends."""
ELSEWHERE = frozenset({"no_such_route", "wrong_method"})
"""Error codes for URLs that belong to no operation."""
LOUD = frozenset({"error", "critical"})


@dataclass(frozen=True)
class SentRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.url[:300]} {dict(self.headers)} {self.body[:1000]!r}"


@dataclass
class RecordingClient:
    """Sends requests to `app`; `runner` keeps one event loop for all of them."""

    app: PopulatedApp
    runner: asyncio.Runner
    logged: list[Any]
    complaints: dict[str, str] = field(default_factory=dict)
    """What was wrong, with the shortest request that showed it."""
    statuses: dict[int, int] = field(default_factory=dict)

    def ask(self, asked: SentRequest, identity: str = "owner", app: FastAPI | None = None) -> httpx2.Response | None:
        """Send a request and return the response; None, with a complaint, if the application raised."""
        headers = {**asked.headers, **self.app.headers(identity)}
        try:
            answer = self.run(self._sent(app or self.app.api, asked, headers))
        except httpx2.InvalidURL:
            return None  # longer than this client can ask
        except Exception as error:  # noqa: BLE001 whatever it is, it is the finding
            self.complain(f"raised {type(error).__name__}: {str(error)[:300]}", asked)
            return None
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        self._look(answer, asked)
        if answer.status_code == httpx2.codes.UNAUTHORIZED and identity == "admin":
            self.run(self._reinstate())
        return answer

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the client's loop. `Runner.run` would set a signal handler and format its argument each time."""
        return self.runner.get_loop().run_until_complete(work)

    def complain(self, what: str, asked: SentRequest) -> None:
        if what not in self.complaints or len(str(asked)) < len(self.complaints[what]):
            self.complaints[what] = str(asked)

    def assert_no_complaints(self) -> None:
        """Fail with all complaints, and clear them."""
        told = "\n\n".join(f"{what}\n    {how}" for what, how in self.complaints.items())
        self.complaints.clear()
        assert not told, told

    def _look(self, answer: httpx2.Response, asked: SentRequest) -> None:
        """Check what holds for every response."""
        for entry in self.logged:
            if entry["log_level"] in LOUD or "exception" in entry:
                self.complain(f"logged {entry['event']}: {str(entry.get('exception'))[-2000:]}", asked)
        self.logged.clear()
        if answer.status_code >= 400 and asked.method != "HEAD":
            for wrong in wrong_with_problem(answer):
                self.complain(wrong, asked)

    async def _sent(self, app: FastAPI, asked: SentRequest, headers: Mapping[str, str]) -> httpx2.Response:
        """Send without httpx's client, which would keep cookies and takes as long per request as the application."""
        sent = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()]
        url = f"{HERE}{asked.url}" if asked.url.startswith("/") else asked.url
        request = httpx2.Request(asked.method, url, headers=[*USUAL, *sent], content=asked.body)
        answer = await httpx2.ASGITransport(app).handle_async_request(request)
        await answer.aread()
        return answer

    async def _reinstate(self) -> None:
        """Restore the administrator after a request disabled them or revoked their token."""
        people = self.app.control.people
        await people.change_user(OWNER, "admin", UserChange(admin=True, disabled=False))
        assert isinstance(self.app.tokens, dict)
        self.app.tokens["admin"] = await token_of(self.app.control, "admin")


def wrong_with_problem(answer: httpx2.Response) -> Iterator[str]:
    if answer.headers.get("content-type") != MEDIA_TYPE:
        if answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
            yield f"{answer.status_code} is no problem but {answer.headers.get('content-type')}"
        return
    told = json.loads(answer.content)
    if not told.get("detail") or not told.get("code"):
        yield f"{answer.status_code} does not say what happened: {told}"
    if not told.get("fix"):
        yield f"{answer.status_code} {told.get('code')} says no fix: {told.get('detail')!r:.200}"


class _Others(logging.Handler):
    """Collect errors of other loggers, mainly those of the event loop."""

    def __init__(self, found: list[Any]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append({"event": record.getMessage(), "log_level": "error", "exception": record.exc_text})


@contextmanager
def recording_client(folder: Path) -> Iterator[RecordingClient]:
    """Yield a client of a new app. Fails at the end with all complaints."""
    with open_recording_client(folder) as found:
        yield found
    found.assert_no_complaints()


@contextmanager
def open_recording_client(folder: Path) -> Iterator[RecordingClient]:
    """Yield a client of a new app; the caller checks its complaints."""
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch, _listening() as logged:
        patch.setattr(rate_limits, "USERS", FREE)
        patch.setattr(rate_limits, "ANONYMOUS", FREE)
        harness = runner.run(make_harness(folder))
        found = RecordingClient(runner.run(populate(harness)), runner, logged)
        try:
            yield found
        finally:
            runner.run(give_back(harness.ports.db))


@contextmanager
def _listening() -> Iterator[list[Any]]:
    """Collect everything that is logged in the block, with tracebacks."""
    with capture_logs(processors=[format_exc_info]) as logged:
        handler = _Others(logged)
        logging.getLogger().addHandler(handler)
        try:
            yield logged
        finally:
            logging.getLogger().removeHandler(handler)
