"""Replace secrets in a job's output by `***`, including those that are split over two reads.

A secret is searched for in plain text, and in the encodings that programs write (see `secret_forms`). A tail that may
be the beginning of a secret is held back until the next bytes decide. No form contains the end of a line, so a
complete line is never held back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Optional

from crucible.agent.output.secret_forms import secret_forms

MASK = b"***"


class Redactor:
    """Call `feed` with pieces as they come, then `finish`. The result holds no secret, not even one across two pieces.

    `text` and `data` redact complete values. They do not touch the stream, and are usable from any thread.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = sorted(secret_forms(secrets), key=lambda form: (-len(form), form))
        self._pattern: Optional[re.Pattern[bytes]] = _pattern(self._forms)
        self._starts = _Starts(self._forms)
        self._held = b""

    @property
    def held(self) -> int:
        """Number of bytes that are held back."""
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        """Whether there are no secrets."""
        return self._pattern is None

    def feed(self, piece: bytes) -> bytes:
        if self._pattern is None:
            return piece
        text = self._held + piece
        keep = self._starts.in_tail_of(text)
        if not self.has_secret(text):
            self._held = text[keep:]
            return text[:keep]
        # A complete match may reach into the tail that would be held back: then less is held back.
        for match in self._pattern.finditer(text):
            if match.start() >= keep:
                break
            keep = max(keep, match.end())
        self._held = text[keep:]
        return self._pattern.sub(MASK, text[:keep])

    def finish(self) -> bytes:
        """Return the bytes that were held back, masked. Call it at the end."""
        rest, self._held = self._held, b""
        return self._mask(rest)

    def text(self, text: str) -> str:
        """Return a complete text with secrets masked."""
        raw = text.encode("utf-8", "surrogateescape")
        return self._mask(raw).decode("utf-8", "surrogateescape") if self.has_secret(raw) else text

    def data(self, value: object) -> object:
        """Return a JSON value with secrets masked in every string, keys included."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.data(item) for name, item in value.items()}
        return [self.data(item) for item in value] if isinstance(value, (list, tuple)) else value

    def has_secret(self, text: bytes) -> bool:
        """Return whether any form is in the text. Several plain searches are much faster than one regex."""
        return any(form in text for form in self._forms)

    def _mask(self, text: bytes) -> bytes:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _pattern(found: list[bytes]) -> Optional[re.Pattern[bytes]]:
    """Return a pattern in which the longest form wins. Forms with the same first bytes are grouped, for speed."""
    if not found:
        return None
    alike: dict[bytes, list[bytes]] = {}
    for form in found:
        alike.setdefault(form[:2], []).append(form[2:])
    groups = [re.escape(head) + b"(?:" + b"|".join(map(re.escape, rest)) + b")" for head, rest in alike.items()]
    return re.compile(b"|".join(groups))


class _Starts:
    """Finds where the end of a text may be the beginning of a form."""

    def __init__(self, found: list[bytes]) -> None:
        self._longest = max(map(len, found), default=1) - 1
        self._alike: dict[bytes, list[bytes]] = {}
        for form in found:
            self._alike.setdefault(form[:2], []).append(form)
        firsts = b"".join(sorted({form[:1] for form in found}))
        self._first = frozenset(firsts)
        self._heads = re.compile(b"|".join(map(re.escape, sorted(self._alike)))) if found else None

    def in_tail_of(self, text: bytes) -> int:
        """Return the first index from which the rest of the text is the beginning of a form, or the text's length."""
        if self._heads is None or not text:
            return len(text)
        at = max(0, len(text) - self._longest)
        while True:
            found = self._heads.search(text, at)
            if found is None:
                break
            at, rest = found.start(), text[found.start() :]
            if any(len(form) > len(rest) and form.startswith(rest) for form in self._alike[found.group()]):
                return at
            at += 1
        return len(text) - 1 if text[-1] in self._first else len(text)
