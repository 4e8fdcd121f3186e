"""Tags: labels to find jobs by, `key` or `key=value`. A job has at most one value of a key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from crucible.core.errors import BadInput

MAX_TAGS = 50
MAX_KEY = 100
MAX_VALUE = 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Tag:
    """A tag; one without a value has the value "" and is written as its key alone."""

    key: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.value else self.key


def parse_tag(text: str) -> Tag:
    """Parse a tag; everything after the first `=` is the value. Raises BadInput."""
    key, _, value = (part.strip() for part in text.partition("="))
    wrong = _wrong(key, value) or ("It contains control characters." if _CONTROL.search(text) else "")
    if wrong:
        raise BadInput(
            f"{text[:MAX_KEY]!r} is not a valid tag.",
            why=wrong,
            fix=f"Write key or key=value: a key of 1 to {MAX_KEY} characters, a value of at most {MAX_VALUE}.",
            field="tags",
        )
    return Tag(key, value)


def parse_tags(texts: Iterable[str]) -> tuple[Tag, ...]:
    """Parse tags; of repeated keys the last one counts. Raises BadInput for an invalid tag, or for too many."""
    found = {tag.key: tag for tag in map(parse_tag, texts)}
    check_count(len(found))
    return tuple(found.values())


def check_count(count: int) -> None:
    """Raise BadInput if a job would have too many tags."""
    if count > MAX_TAGS:
        raise BadInput(
            f"A job has at most {MAX_TAGS} tags; this would make {count}.",
            fix="Remove some that are not needed: crucible tag JOB --remove TAG",
            field="tags",
        )


def _wrong(key: str, value: str) -> str:
    if not key:
        return "Its key is empty."
    return "It is too long." if len(key) > MAX_KEY or len(value) > MAX_VALUE else ""
