"""Hears from the machine's metadata address that the place is about to take the machine back.

404 is the good answer: nothing was announced. 200 with `{"action", "seconds"}` is a notice. Everything else is
silence: an address that fails says nothing about the machine.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import threading
import time
from dataclasses import dataclass
from typing import Callable
from urllib.parse import urlsplit

from crucible.wire.http.client import BaseUrl, HttpClient, HttpError, Request

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
ANSWER_SECONDS = 1.0
MAX_ANSWER = 16 * 1024
UNKNOWN_SECONDS = 30.0
"""What is assumed where a notice does not say how much time is left."""
EARLIER_SECONDS = 1.0
"""A notice that says it is so much earlier is another notice."""


class BadMetadataUrl(ValueError):
    """Not an address at which a machine tells about itself."""


@dataclass(frozen=True)
class MetadataUrl:
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> MetadataUrl:
        """Plain HTTP, on this machine or its link, and named by number: nobody else can answer. Raises BadAddress."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 80
            address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        except ValueError as error:
            raise BadMetadataUrl(f"not a metadata address: {error}") from error
        if parts.scheme != "http" or not (address.is_loopback or address.is_link_local):
            raise BadMetadataUrl("a metadata address is http:// on the loopback or link-local")
        return cls(str(address), port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def fetch_notice(address: MetadataUrl, seconds: float = ANSWER_SECONDS) -> float | None:
    """Seconds until the machine is taken; None when nothing was announced or nothing could be learned."""
    client = HttpClient(BaseUrl("http", address.host, address.port))
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
    """Asks every second; tells the first notice, and later ones that leave less time than was told."""

    def __init__(self, address: MetadataUrl, noticed: Callable[[float], None], every: float = EVERY_SECONDS) -> None:
        super().__init__(name="interruption", daemon=True)
        self._address = address
        self._noticed = noticed
        self._every = every
        self._taken_at = math.inf
        self._ending = threading.Event()

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        while not self._ending.is_set():
            seconds = fetch_notice(self._address)
            if seconds is not None and not self._ending.is_set():
                self._tell(seconds)
            self._ending.wait(self._every)

    def _tell(self, seconds: float) -> None:
        taken_at = time.monotonic() + seconds
        if taken_at < self._taken_at - EARLIER_SECONDS:
            self._taken_at = taken_at
            log.info("the place takes the machine back in %.0f seconds", seconds)
            self._noticed(seconds)


def start_interruption_watch(url: str | None, noticed: Callable[[float], None]) -> InterruptionWatch | None:
    """A started watch; None where there is nothing to ask."""
    if not url:
        return None
    try:
        watching = InterruptionWatch(MetadataUrl.parse(url), noticed)
    except BadMetadataUrl as error:
        log.warning("interruptions of this machine will not be noticed: %s", error)
        return None
    watching.start()
    return watching
