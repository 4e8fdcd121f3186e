"""Absences: since when this process has found nothing of a machine, on a clock that nobody sets.

A clock that is set between two lists would make them look further apart than they are, and a list may be older than a
new machine. What another process saw, or this one before it was started again, does not count here.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from crucible.core.lifecycle import Machine


class MissingSince:
    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seconds_missing(self, machine: Machine, asked: float, answered: float) -> float:
        """Seconds from the answer that first said so to this question. Both by the steady clock."""
        if not machine.gone_sightings:
            self._since.pop(machine.id, None)  # it was seen meanwhile, maybe by somebody else
        return max(0.0, asked - self._since.setdefault(machine.id, answered))

    def drop_if_gone(self, machine: Machine) -> None:
        """Once it is gone by the books."""
        if not machine.alive:
            self._since.pop(machine.id, None)

    def keep_only(self, machines: AbstractSet[str]) -> None:
        """Of all others nothing will be asked any more. Transactions add some meanwhile, in threads of their own."""
        for machine in self._since.keys() - machines:
            self._since.pop(machine, None)
