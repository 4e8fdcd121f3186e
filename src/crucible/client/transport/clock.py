"""The time that waits and deadlines are measured by; the module `time` is one."""

from __future__ import annotations

from typing import Protocol


class MonotonicClock(Protocol):
    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...
