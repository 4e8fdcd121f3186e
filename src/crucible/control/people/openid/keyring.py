"""The provider's keys, kept for a while. A key that is not among them is looked for once more, and not too often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from crucible.control.people.openid.web import Web, trouble

if TYPE_CHECKING:
    from joserfc.jwk import Key

KEEP_SECONDS = 3600.0
AGAIN_SECONDS = 30.0
"""Whoever sends tokens with made-up key names makes us ask the provider no more often than this."""
MAX_KEYS = 100
SIGNING = frozenset({"RSA", "EC", "OKP"})
"""Kinds of keys with a public half. A shared secret in that list would be one that everybody knows."""


class Keyring:
    """Used from several threads; `now` are seconds that only rise."""

    def __init__(self, web: Web, now: Callable[[], float]) -> None:
        self._web = web
        self._now = now
        self._lock = threading.Lock()
        self._keys: tuple[Key, ...] = ()
        self._fetched: tuple[str, float] | None = None

    def find(self, url: str, kid: str | None) -> Key | None:
        """The key of this name; without a name the only one there is. Raises ProviderTrouble."""
        with self._lock:
            age = self._age(url)
            if age is None or age > KEEP_SECONDS:
                self._fetch(url)
                return self._named(kid)
            found = self._named(kid)
            if found is None and age >= AGAIN_SECONDS:
                self._fetch(url)
                found = self._named(kid)
            return found

    def _age(self, url: str) -> float | None:
        if self._fetched is None or self._fetched[0] != url:
            return None
        return self._now() - self._fetched[1]

    def _named(self, kid: str | None) -> Key | None:
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.kid == kid), None)

    def _fetch(self, url: str) -> None:
        reply = self._web.ask(url)
        listed = reply.body.get("keys") if isinstance(reply.body, Mapping) else None
        if reply.status != 200 or not isinstance(listed, list):
            raise trouble(url, "It does not list its keys.")
        self._keys = tuple(key for given in listed[:MAX_KEYS] if (key := _imported(given)) is not None)
        self._fetched = (url, self._now())


def _imported(given: Any) -> Key | None:
    """None for what cannot be used here: providers also list keys for other purposes."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    if not isinstance(given, dict) or given.get("kty") not in SIGNING or given.get("use", "sig") != "sig":
        return None
    try:
        return import_key(given)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
