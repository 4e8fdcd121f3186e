"""The allowed transitions of allowed.txt, as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("allowed.txt")
ANY = "any"
STAYS = "="
EXITS = "completed exit_code out_of_memory cancelled interrupted suspended machine_lost not_begun refused"
"""Of the reasons a report may give, one of each kind."""


@dataclass(frozen=True)
class Rule:
    """One row for one state. `why`: the reasons an attempt may carry then."""

    state: str
    fact: str
    becomes: str
    events: tuple[str, ...]
    effects: tuple[str, ...]
    why: tuple[str, ...]
    when: str


def _table(name: str) -> tuple[Rule, ...]:
    part = FILE.read_text("utf-8").split(f"== {name}\n")[1].split("\n== ")[0]
    head, *lines = [line for line in part.splitlines() if line.strip()]
    columns = [cell.strip() for cell in head.split("|")]
    return tuple(rule for line in lines for rule in _rules(columns, line))


def _rules(columns: list[str], line: str) -> Iterator[Rule]:
    """A line may name several states."""
    cells = dict(zip(columns, (cell.strip() for cell in line.split("|")), strict=True))
    for state in cells["state"].split():
        yield Rule(
            state,
            cells["fact"],
            state if cells["becomes"] == STAYS else cells["becomes"],
            tuple(cells.get("events", "").split()),
            tuple(cells.get("effects", "").split()),
            tuple(cells.get("why", "").replace("EXITS", EXITS).split()),
            cells["when"],
        )


JOBS = _table("jobs")
ATTEMPTS = _table("attempts")
MACHINES = _table("machines")

TOGETHER = {
    "pending": "none",
    "blocked": "none",
    "queued": "none",
    "provisioning": "placed launching",
    "starting": "placed launching staging",
    "running": "running saving",
    "stopping": "placed launching staging running saving",
    "completed": "none",
    "failed": "none",
    "cancelled": "none",
}
"""The states that a job's live attempt may be in beside the job's own; `none`: no attempt lives."""
