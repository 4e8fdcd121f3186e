"""Calls to the simulated cloud. Each has a deadline, and fails in one of three ways.

NotSent       no connection: the cloud certainly did nothing
NoAnswer      sent, but without a complete response: anything may have happened
ErrorAnswer   an error response, with a status and a code
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlencode

from crucible.core.secret import Secret
from crucible.wire.http.client import BaseUrl, HttpClient, HttpError, NotConnected, Request
from crucible.wire.process import is_locked

Json = dict[str, object]

CALL_SECONDS = 5.0
PAGE = 100


class CallFailed(Exception):
    """A call failed; see the subclasses."""


class NotSent(CallFailed):
    pass


class NoAnswer(CallFailed):
    pass


class ErrorAnswer(CallFailed):
    def __init__(self, status: int, code: str, message: str, retry_after: str | None = None) -> None:
        super().__init__(f"{message} ({status} {code})")
        self.status = status
        self.code = code
        self.retry_after = retry_after


@dataclass(frozen=True)
class Address:
    """The address of a running cloud, from the file that it writes to its state folder."""

    url: str
    pid: int
    key: Secret
    admin_key: Secret = field(repr=False)

    @classmethod
    def read(cls, state: Path) -> Address | None:
        """Read the address; None if no cloud has ever run in this folder, or the file is invalid."""
        try:
            doc = json.loads((state / "cloud.json").read_bytes())
            return cls(str(doc["url"]), int(doc["pid"]), Secret(doc["key"]), Secret(doc["admin_key"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Connection:
    """The cloud of a state folder. Reads its address for each call: a restarted cloud may have another one."""

    state: Path
    seconds: float = CALL_SECONDS

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> Json:
        """Return the JSON document of the response. Raises CallFailed."""
        address = Address.read(self.state)
        if address is None:
            raise NotSent(f"no cloud has been started in {self.state}")
        if not address.url.startswith("unix:") and not is_locked(self.state / "lock"):
            # A cloud of version 0.1.0, which listened at a TCP port: now that it has ended, anybody may have the port.
            raise NotSent(f"the cloud in {self.state} has ended")
        target = f"{path}?{urlencode(query)}" if query else path
        key = address.admin_key if path.startswith("/admin/") else address.key
        return _call(address.url, method, target, key, body, time.monotonic() + self.seconds)

    def pages(self, until: float, filters: Mapping[str, str]) -> Iterator[Json]:
        """Yield every instance that matches the filters, page by page. Raises NoAnswer after `until` (monotonic)."""
        query = {**filters, "limit": str(PAGE)}
        while True:
            answer = self.call("GET", "/v1/instances", query=query)
            found = answer.get("instances")
            yield from found if isinstance(found, list) else ()
            following = answer.get("next")
            if not isinstance(following, str):
                return
            if time.monotonic() > until:
                raise NoAnswer("the list takes too long")
            query["cursor"] = following


def _call(url: str, method: str, target: str, key: Secret, body: Mapping[str, object] | None, until: float) -> Json:
    raw = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key.reveal()}"}
    try:
        with closing(HttpClient(BaseUrl.parse(url))) as client:
            seconds = _left(until)
            response = client.send(Request(method, target, seconds, seconds, headers, raw))
            document = _document(response.read(seconds=_left(until)))
    except NotConnected as error:
        raise NotSent(f"{error}") from error
    except (HttpError, TimeoutError, ValueError, RecursionError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    if response.status_code >= 400:
        raise _error(response.status_code, document, response.headers.get("Retry-After"))
    return document


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the call took too long")
    return left


def _document(raw: bytes) -> Json:
    document = json.loads(raw)
    if not isinstance(document, dict):
        raise ValueError("the response is not a JSON object")
    return document


def _error(status: int, document: Json, retry_after: str | None) -> ErrorAnswer:
    error = document.get("error")
    fields = error if isinstance(error, dict) else {}
    return ErrorAnswer(status, str(fields.get("code", "")), str(fields.get("message", "")), retry_after)
