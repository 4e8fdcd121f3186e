"""Hash and verify passwords with argon2id, and slow down guessing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from crucible.core.errors import BadInput, TooManyAttempts
from crucible.core.people.identity import LONGEST_PASSWORD, SHORTEST_PASSWORD
from crucible.core.secret import Secret

if TYPE_CHECKING:
    from argon2 import PasswordHasher

HASH_SECONDS = 10.0
FREE_ATTEMPTS = 5
MAX_WAIT = 900.0
MAX_NAMES = 10_000


def parse_password(password: str) -> Secret:
    """Return the password. Raises BadInput if it is too short, too long or blank."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD or not password.strip():
        raise BadInput(
            "This password cannot be used.",
            why=f"A password needs {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters that are not all blank.",
            fix="Choose another one, for example a sentence.",
            field="password",
        )
    return Secret(password)


def hash_password(password: Secret) -> str:
    """Return the hash to store. Blocks for about 50 ms, so do not call it on the event loop."""
    return _hasher().hash(password.reveal())


def verify_password(password: Secret, stored: str | None) -> bool:
    """Return whether the password matches the stored hash. Blocks as `hash_password` does.

    Without a hash it takes as long as with one, so that its time does not show which users exist.
    """
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        _hasher().verify(stored or _dummy_hash(), password.reveal())
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def _dummy_hash() -> str:
    return _hasher().hash("nobody's password")


class Throttle:
    """Delays logins after failures for the same name; each further failure doubles the delay."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: dict[str, tuple[int, float]] = {}
        self._running: Counter[str] = Counter()

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Enclose one attempt to log in. Raises TooManyAttempts while the name has to wait.

        Running attempts count as failures, or many parallel attempts would avoid the delay.
        """
        failures, until = self._failures.get(name, (0, 0.0))
        wait = until - self._now()
        if wait > 0:
            raise _too_many("Too many wrong passwords for this user.", wait)
        if self._running[name] >= max(FREE_ATTEMPTS - failures, 1):
            raise _too_many("Too many logins as this user at once.", 1.0)
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            self._running += Counter()  # drops names whose count is 0

    def record_failure(self, name: str) -> None:
        count = self._failures.pop(name, (0, 0.0))[0] + 1
        wait = min(2.0 ** (count - FREE_ATTEMPTS), MAX_WAIT) if count >= FREE_ATTEMPTS else 0.0
        self._failures[name] = (count, self._now() + wait)
        while len(self._failures) > MAX_NAMES:
            del self._failures[next(iter(self._failures))]

    def record_success(self, name: str) -> None:
        self._failures.pop(name, None)


def _too_many(what: str, seconds: float) -> TooManyAttempts:
    wait = max(1, round(seconds))
    return TooManyAttempts(
        what, why="Someone may be guessing passwords.", fix=f"Try again in {wait} s.", retry_after=wait
    )
