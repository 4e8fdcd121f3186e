"""Keep the secrets of a backend's settings out of the errors that it raises: a vendor's message may repeat them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from crucible.backends.settings import HIDDEN
from crucible.control.runtime.ports import Calls
from crucible.core.errors import CrucibleError
from crucible.core.secret import Secret

T = TypeVar("T")

SHORTEST = 4
"""Characters. A shorter secret would match everywhere."""


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """Return the text with each of the secrets replaced by `***`."""
    for secret in secrets:
        if len(secret.reveal()) >= SHORTEST:
            text = text.replace(secret.reveal(), HIDDEN)
    return text


def redact_error(error: CrucibleError, secrets: Iterable[Secret]) -> None:
    """Replace the secrets in the parts of an error."""
    hidden = tuple(secrets)
    error.what, error.why, error.fix = (redact(part, hidden) for part in (error.what, error.why, error.fix))
    error.args = (error.what,)
    error.data = {name: redact(each, hidden) if isinstance(each, str) else each for name, each in error.data.items()}


class RedactingCalls:
    """Calls whose errors do not contain the secrets of their lane. `secrets_of` returns those of a lane."""

    def __init__(self, calls: Calls, secrets_of: Callable[[str], Iterable[Secret]]) -> None:
        self._calls = calls
        self._secrets_of = secrets_of

    async def run(self, lane: str, work: Callable[[], T], deadline: float) -> T:
        try:
            return await self._calls.run(lane, work, deadline)
        except CrucibleError as error:
            if secrets := tuple(self._secrets_of(lane)):
                redact_error(error, secrets)
                error.__cause__ = None  # a logged traceback would show the vendor's own message
            raise

    async def close(self) -> None:
        await self._calls.close()
