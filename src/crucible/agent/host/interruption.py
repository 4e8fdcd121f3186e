"""Watch the provider's metadata service for the notice that it will reclaim this machine.

404 means that nothing was announced. 200 with `{"action", "seconds"}` is a notice. Any other response, or none, is
ignored: a failing metadata service says nothing about the machine.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import os
import threading
import time
from dataclasses import dataclass
from typing import Callable
from urllib.parse import unquote_to_bytes, urlsplit

from crucible.wire.http.client import BaseUrl, HttpClient, HttpError, Request

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
ANSWER_SECONDS = 1.0
MAX_ANSWER = 16 * 1024
UNKNOWN_SECONDS = 30.0
"""Assumed time left if a notice does not state it."""
EARLIER_SECONDS = 1.0
"""A notice counts as a new one if it names a time at least this much earlier."""


class BadMetadataUrl(ValueError):
    """The URL is not a metadata URL of this machine."""


@dataclass(frozen=True)
class MetadataUrl:
    """The parsed URL of a metadata service. `socket`: the path of its Unix socket, if it listens at one."""

    host: str
    port: int
    path: str
    socket: str = ""

    @classmethod
    def parse(cls, url: str) -> MetadataUrl:
        """Return the parsed URL: plain HTTP to a loopback or link-local IP address, or to a Unix socket
        (`http+unix://%2Fpath%2Fto%2Fsocket/target`). Raises BadMetadataUrl.

        Elsewhere others than the provider could answer, with a forged notice.
        """
        try:
            parts = urlsplit(url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            if parts.scheme == "http+unix" and parts.netloc.startswith("%2F"):
                return cls("localhost", 80, target, os.fsdecode(unquote_to_bytes(parts.netloc)))
            host, port = parts.hostname or "", parts.port or 80
            address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        except ValueError as error:
            raise BadMetadataUrl(f"not a metadata URL: {error}") from error
        if parts.scheme != "http" or not (address.is_loopback or address.is_link_local):
            raise BadMetadataUrl("a metadata URL is http:// with a loopback or link-local address")
        return cls(str(address), port, target)


def fetch_notice(address: MetadataUrl, seconds: float = ANSWER_SECONDS) -> float | None:
    """Return the seconds until the machine is reclaimed; None if nothing was announced, or the request failed."""
    client = HttpClient(BaseUrl("http", address.host, address.port, socket=address.socket))
    try:
        response = client.send(Request("GET", address.path, seconds, seconds, {"Connection": "close"}))
        return _parse_notice(response.read(MAX_ANSWER, seconds)) if response.status_code == 200 else None
    except (HttpError, ValueError, OverflowError, RecursionError):
        return None
    finally:
        client.close()


def _parse_notice(body: bytes) -> float | None:
    notice = json.loads(body)
    if not isinstance(notice, dict) or not notice.get("action"):
        return None
    seconds = notice.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        return UNKNOWN_SECONDS
    return max(0.0, float(seconds))


class InterruptionWatch(threading.Thread):
    """Polls every second; calls `on_notice` for the first notice, and for later ones that leave less time."""

    def __init__(self, address: MetadataUrl, on_notice: Callable[[float], None], every: float = EVERY_SECONDS) -> None:
        super().__init__(name="interruption", daemon=True)
        self._address = address
        self._on_notice = on_notice
        self._every = every
        self._interrupted_at = math.inf
        self._ending = threading.Event()

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        while not self._ending.is_set():
            seconds = fetch_notice(self._address)
            if seconds is not None and not self._ending.is_set():
                self._handle(seconds)
            self._ending.wait(self._every)

    def _handle(self, seconds: float) -> None:
        interrupted_at = time.monotonic() + seconds
        if interrupted_at < self._interrupted_at - EARLIER_SECONDS:
            self._interrupted_at = interrupted_at
            log.info("the provider will reclaim the machine in %.0f seconds", seconds)
            self._on_notice(seconds)


def start_interruption_watch(url: str | None, on_notice: Callable[[float], None]) -> InterruptionWatch | None:
    """Start a watch and return it; None if there is no usable URL."""
    if not url:
        return None
    try:
        watch = InterruptionWatch(MetadataUrl.parse(url), on_notice)
    except BadMetadataUrl as error:
        log.warning("interruptions of this machine will not be noticed: %s", error)
        return None
    watch.start()
    return watch
