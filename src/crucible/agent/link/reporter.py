"""Send a runner's messages: redact and clean them, and store them in the spool first."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Callable

from crucible.agent.link.spool import Spool
from crucible.agent.output.redaction import Redactor
from crucible.wire.documents.messages import MessageKind

log = logging.getLogger(__name__)

_MAY_BE_LOST = frozenset({MessageKind.POINTS, MessageKind.PROGRESS, MessageKind.NOTE})
_JOB_FIELDS = frozenset(
    {"command", "environment", "message", "name", "packages", "python", "series", "text", "value", "what"}
)
"""Fields whose text comes from the job or from users."""
RETRY_SECONDS = 1.0
NOTE_LENGTH = 2000


class Reporter:
    """Usable from any thread. `on_message` is called after each stored message, to wake the uploader.

    Once `redactor` is set, every message is redacted before it is stored.
    """

    def __init__(
        self, spool: Spool, on_message: Callable[[], None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.redactor: Redactor | None = None
        self._spool = spool
        self._on_message = on_message
        self._sleep = sleep

    def send(self, kind: MessageKind, data: Mapping[str, object]) -> None:
        """Store the message. On a full disk, points, progress and notes are dropped and the others wait."""
        redacted = self.redact(data)
        while True:
            try:
                self._spool.append(kind, redacted)
                break
            except OSError as error:
                log.warning("cannot store a %s message: %s", kind.value, error)
                if kind in _MAY_BE_LOST:
                    return
                self._sleep(RETRY_SECONDS)
        self._on_message()

    def redact(self, data: Mapping[str, object]) -> Mapping[str, object]:
        """Return the data with secrets masked, in fields from the job only.

        Protocol fields must stay intact, even if a secret happens to spell `exit`.
        """
        redactor = self.redactor
        if redactor is None:
            return data
        return {name: redactor.data(value) if name in _JOB_FIELDS else value for name, value in data.items()}

    def note(self, text: str) -> None:
        self.send(MessageKind.NOTE, {"text": self._short(text)})

    def staging(self, what: str) -> None:
        self.send(MessageKind.STAGING, {"what": self._short(what)})

    def _short(self, text: str) -> str:
        """Return the text, redacted and then cut: half a secret would not be recognized."""
        cleaned = clean_text(text)
        if self.redactor is not None:
            cleaned = self.redactor.text(cleaned)
        return cleaned[:NOTE_LENGTH]


def clean_text(text: str) -> str:
    """Return text that every database accepts: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def clean_data(data: Mapping[str, object]) -> dict[str, object]:
    return {name: _cleaned(value) for name, value in data.items()}


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    return [_cleaned(item) for item in value] if isinstance(value, list) else value
