"""What a fault proxy may do to an exchange, and the luck that decides."""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


class Fault(enum.Enum):
    DELAY = "delay"
    """Up to `seconds` pass before anything is done; then the other rules decide."""
    RESET = "reset"
    """The connection is reset before anything is delivered."""
    CUT_REQUEST = "cut_request"
    """A part of the request is delivered, never all of it."""
    DROP_ANSWER = "drop_answer"
    """Delivered and answered; the answer never arrives: the caller cannot know what was done."""
    CUT_ANSWER = "cut_answer"
    """A part of the answer arrives: perhaps not even its first line."""
    TRUNCATE = "truncate"
    """The answer's head arrives, and less of its body than it says."""
    BUSY = "busy"
    """Answered by the proxy with `status`, and Retry-After `seconds`; not delivered."""
    BLACK_HOLE = "black_hole"
    """Taken and never answered; not delivered."""
    DUPLICATE = "duplicate"
    """Delivered twice at the same time over two connections; one of the answers arrives."""


@dataclass(frozen=True)
class Rule:
    """`chance` is that of every exchange whose `METHOD /target` begins as the pattern `match` says.

    `at`: the byte where a cut is made (None: any). `times`: how often it happens at most.
    """

    fault: Fault
    chance: float = 1.0
    match: str = ""
    seconds: float = 0.0
    status: int = 503
    at: int | None = None
    times: int | None = None


class Dice:
    """Seeded. Each rule has luck of its own: the n-th exchange that it fits always meets the same."""

    def __init__(self, rules: Sequence[Rule], seed: object) -> None:
        self._loaded = [Loaded(rule, random.Random(f"{seed}:{n}")) for n, rule in enumerate(rules)]

    def throw(self, request: str) -> tuple[float, Loaded | None]:
        """The delay, and the first rule that happens to this exchange."""
        happening = [loaded for loaded in self._loaded if loaded.fits(request) and loaded.happens()]
        delays = [loaded for loaded in happening if loaded.rule.fault is Fault.DELAY]
        others = (loaded for loaded in happening if loaded not in delays)
        taken = next(others, None)
        for loaded in [*delays, *([taken] if taken else [])]:
            loaded.left -= 1
        return sum(loaded.random.uniform(0, loaded.rule.seconds) for loaded in delays), taken


class Loaded:
    """A rule with its luck."""

    def __init__(self, rule: Rule, luck: random.Random) -> None:
        self.rule = rule
        self.random = luck
        self.left: float = float("inf") if rule.times is None else rule.times
        self._match = re.compile(rule.match)

    def fits(self, request: str) -> bool:
        return self._match.match(request) is not None

    def happens(self) -> bool:
        return self.random.random() < self.rule.chance and self.left > 0

    def cut(self, first: int, size: int) -> int:
        """How many bytes of `size` pass: at least `first`, never all."""
        if self.rule.at is not None:
            return min(self.rule.at, size - 1)
        return self.random.randrange(first, size) if first < size else size - 1


def storm(share: float, match: str = "", seconds: float = 1.0) -> Iterator[Rule]:
    """As many 429 as 503, `share` of all exchanges together."""
    for status in (429, 503):
        yield Rule(Fault.BUSY, share / 2, match, seconds, status)
