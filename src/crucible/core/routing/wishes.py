"""Wishes: what the owner of a job wants of the place that runs it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crucible.core.errors import BadInput
from crucible.core.offers import Market
from crucible.core.routing.work import Work


class Objective(enum.StrEnum):
    COST = "cost"
    SPEED = "speed"
    BALANCED = "balanced"
    DEADLINE = "deadline"


@dataclass(frozen=True)
class Wishes:
    """What is empty or None was not wished for. `backend` is an explicit choice: nothing else is looked at.

    `market` None: spot too for work that may be interrupted. Money is in micro-dollars, time in seconds from now.
    """

    optimize: Objective = Objective.COST
    backend: str = ""
    backends: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    market: Market | None = None
    dedicated: bool = False
    max_cost: int | None = None
    deadline: float | None = None


def check(wishes: Wishes, work: Work) -> None:
    """Raises BadInput for wishes that contradict each other, or the work."""
    if wishes.optimize is Objective.DEADLINE and wishes.deadline is None:
        raise BadInput("There is no deadline to meet.", fix="Say when it has to be done: --deadline 6h.")
    if wishes.deadline is not None and wishes.deadline <= 0:
        raise BadInput("The deadline has passed.", fix="Name one that lies ahead, such as 6h.")
    if wishes.max_cost is not None and wishes.max_cost < 0:
        raise BadInput("The most it may cost is less than nothing.", fix="Give dollars; 0 means free places only.")
    if wishes.market is Market.SPOT and not work.interruptible:
        raise BadInput(
            "It may not be interrupted, and asks for spot machines, which are taken back.",
            fix="Allow interruptions (interruptible), or leave the market to us.",
        )
    if wishes.backend and wishes.backends and wishes.backend not in wishes.backends:
        raise BadInput(
            f"It is to run on {wishes.backend}, and only on {', '.join(wishes.backends)}.",
            fix="Name one of them, or leave one of the two wishes out.",
        )
    if wishes.gpu_types and work.need.gpus == 0:
        raise BadInput(f"It wants {' or '.join(wishes.gpu_types)}, and no GPU.", fix="Ask for at least one: --gpus 1.")
