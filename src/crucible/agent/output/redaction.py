"""Redaction: secrets in what a program writes become `***`, also across the borders of what was read at once.

A value is looked for as it is and in the forms that programs give it (see `secretforms`). Of what might be the
beginning of one nothing is let through before it is known. No form reaches over the end of a line: a line that
has ended is never kept back, so nobody waits for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Optional

from crucible.agent.output.secret_forms import secret_forms

MASK = b"***"


class Redactor:
    """`feed` pieces as they come, then `finish`; what comes out has no secret in it, in any piece or over two.

    `text` and `data` are for what is whole. They touch nothing of a stream and are usable from any thread.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = sorted(secret_forms(secrets), key=lambda form: (-len(form), form))
        self._pattern: Optional[re.Pattern[bytes]] = _pattern(self._forms)
        self._starts = _Starts(self._forms)
        self._held = b""

    @property
    def held(self) -> int:
        """Bytes that are kept back for now."""
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to hide."""
        return self._pattern is None

    def feed(self, piece: bytes) -> bytes:
        if self._pattern is None:
            return piece
        text = self._held + piece
        keep = self._starts.in_tail_of(text)
        if not self._holds_one(text):
            self._held = text[keep:]
            return text[:keep]
        # A whole match may begin before what is kept and reach into it: then less is kept.
        for match in self._pattern.finditer(text):
            if match.start() >= keep:
                break
            keep = max(keep, match.end())
        self._held = text[keep:]
        return self._pattern.sub(MASK, text[:keep])

    def finish(self) -> bytes:
        """What was kept back; nothing follows."""
        rest, self._held = self._held, b""
        return self._hidden(rest)

    def text(self, text: str) -> str:
        """A whole text without secrets."""
        raw = text.encode("utf-8", "surrogateescape")
        return self._hidden(raw).decode("utf-8", "surrogateescape") if self._holds_one(raw) else text

    def data(self, value: object) -> object:
        """The same of every text in a JSON value, names included."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.data(item) for name, item in value.items()}
        return [self.data(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _holds_one(self, text: bytes) -> bool:
        """Many searches for one text each are several times faster than one for many."""
        return any(form in text for form in self._forms)

    def _hidden(self, text: bytes) -> bytes:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _pattern(found: list[bytes]) -> Optional[re.Pattern[bytes]]:
    """The longest form wins. Those that begin alike stand together, so that few are tried at each place."""
    if not found:
        return None
    alike: dict[bytes, list[bytes]] = {}
    for form in found:
        alike.setdefault(form[:2], []).append(form[2:])
    groups = [re.escape(head) + b"(?:" + b"|".join(map(re.escape, rest)) + b")" for head, rest in alike.items()]
    return re.compile(b"|".join(groups))


class _Starts:
    """Where in a text something begins that could go on to be one of the forms."""

    def __init__(self, found: list[bytes]) -> None:
        self._longest = max(map(len, found), default=1) - 1
        self._alike: dict[bytes, list[bytes]] = {}
        for form in found:
            self._alike.setdefault(form[:2], []).append(form)
        firsts = b"".join(sorted({form[:1] for form in found}))
        self._first = frozenset(firsts)
        self._heads = re.compile(b"|".join(map(re.escape, sorted(self._alike)))) if found else None

    def in_tail_of(self, text: bytes) -> int:
        """The first index from which all that follows is the beginning of a form; the end if there is none."""
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
