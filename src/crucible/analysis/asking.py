"""A question to another process and its answer, as bytes.

Both sides speak JSON: what has read a hostile program is not trusted with more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pydantic import ConfigDict, TypeAdapter

from crucible.analysis.conclusions.runtime import Reference
from crucible.analysis.sources import Sources
from crucible.core.profile import Profile

TAKEN = b"t"
"""Sent first, by whoever takes the question; what follows is about the program."""

ANSWERED = b"a"
"""Before an answer."""

NO_ROOM = b"n"
"""Instead of an answer: memory ran out."""

MAX_ANSWER = 2**20
"""Bytes; a profile is a few thousand."""

_PLAIN = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


@dataclass(frozen=True)
class Question:
    __pydantic_config__ = _PLAIN

    sources: Sources
    reference: Reference


@dataclass(frozen=True)
class Answer:
    __pydantic_config__ = _PLAIN

    profile: Profile


@cache
def questions() -> TypeAdapter[Question]:
    return TypeAdapter(Question)


@cache
def answers() -> TypeAdapter[Answer]:
    return TypeAdapter(Answer)
