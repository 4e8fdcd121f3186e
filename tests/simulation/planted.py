"""Bugs to plant: each undoes one rule of ours, as peers live without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from crucible.backends import base
from crucible.control import agents, effects, repository
from crucible.control.outbox import Claimed
from crucible.control.reconcile import Reconciler
from crucible.control.unit import Unit
from crucible.core.lifecycle import Machine, machines, silence
from crucible.core.lifecycle import facts as f


@dataclass(frozen=True)
class Planted:
    """`seen` names where the like was seen. `first`: a seed that found it lately; others are tried after it."""

    name: str
    seen: str
    plant: Callable[[pytest.MonkeyPatch], None]
    first: int = 1


def lost_is_refused(patch: pytest.MonkeyPatch) -> None:
    """A create without an answer counts as one that made nothing."""
    both = (base.LaunchRefused, base.LaunchUnknown)
    patch.setattr(base, "LaunchUnknown", type("Never", (Exception,), {}))
    patch.setattr(base, "LaunchRefused", both)


def one_list_is_enough(patch: pytest.MonkeyPatch) -> None:
    """What a list does not show is gone."""

    def gone(machine: Machine, now: float, interrupted: bool, detail: str) -> Machine:
        return machines._gone(machine, now, detail)

    patch.setattr(machines, "_seen_gone", gone)


def told_to_end_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A machine that was told to end is gone."""
    real = effects.Performer._call

    async def call(self: Any, effect: Claimed, backend: Any, work: Any) -> Any:
        try:
            return await real(self, effect, backend, work)
        except base.NotYetGone:
            await self._note(effect, f.LaunchAnswered("told"))
            await self._writer.write(lambda unit: _gone(unit, effect.machine.id))
            return []

    patch.setattr(effects.Performer, "_call", call)


def _gone(unit: Unit, name: str) -> None:
    machine = repository.load_machine(unit.conn, name)
    assert machine is not None
    repository.save_machine(unit.conn, machine, machines._gone(machine, unit.now, "told to end"), (), unit.now)


def silence_is_death(patch: pytest.MonkeyPatch) -> None:
    """An attempt that is not heard of for a while is given up and started elsewhere."""
    patch.setattr(silence, "REPLACE_MARGIN", -840.0)


def nobody_sweeps(patch: pytest.MonkeyPatch) -> None:
    """What a dead process was about to do is nobody's."""

    async def none(self: Reconciler) -> list[str]:
        return []

    patch.setattr(Reconciler, "_claim_due", none)


def anybody_claims(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes with the nonce is the machine."""

    def claim(unit: Unit, machine: str, native_id: str) -> None:
        row = agents._wanted(unit, machine)
        repository.save_machine(unit.conn, row, replace(row, claimed_by=native_id), (), unit.now)

    patch.setattr(agents, "_claim", claim)


ALL = (
    Planted("a lost answer is a refusal", "dstack#707, #3453; skypilot#4431", lost_is_refused, first=4),
    Planted("one list is enough", "skypilot#4431", one_list_is_enough, first=3),
    Planted("told to end is gone", "dstack#1551, #3031, #3324", told_to_end_is_gone, first=3),
    Planted("silence is death", "skypilot#10155, #10157, #10123", silence_is_death, first=3),
    Planted("nobody sweeps", "skypilot#5031, #7707", nobody_sweeps),
    Planted("anybody claims", "dstack#2637", anybody_claims),
)
