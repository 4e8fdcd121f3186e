"""Flow: how a block of statements was left."""

from __future__ import annotations

import enum


class Flow(enum.Enum):
    NEXT = enum.auto()
    RETURN = enum.auto()
    BREAK = enum.auto()
    CONTINUE = enum.auto()
    RAISE = enum.auto()
