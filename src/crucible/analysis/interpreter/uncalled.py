"""Sweeping: functions that no code was seen to call may still be called by a framework. Each is followed once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.conclusions.training import training
from crucible.analysis.interpreter.functions import follow, guessed_arguments
from crucible.analysis.interpreter.machine import Exhausted, Machine
from crucible.analysis.source.dead_code import unused_lines
from crucible.analysis.values.facts import Guard
from crucible.analysis.values.values import Function

STEPS = 2_000
"""For each of them."""

PLENTY = 1_500
"""For all of them; of what comes then, only functions that speak of a GPU are followed. Of 589 programs none says more
about itself with more of them."""

SWEPT = 200
"""Functions that are looked at."""

MOST = 100_000
"""Bytes of a file that is no program which are looked at for names."""

_OF_GPUS = ("cuda", "gpu", "device", "nccl", "distributed")
_IN_ANY_CASE = re.compile("|".join(_OF_GPUS), re.IGNORECASE)


def sweep(machine: Machine) -> None:
    machine.facts.followed = len(machine.facts.made)
    plenty = machine.steps + PLENTY
    for function in _left(machine)[:SWEPT]:
        if id(function.node) in machine.visited or (machine.steps > plenty and not _of_gpus(machine, function)):
            continue
        machine.limit = machine.steps + STEPS
        machine.guards, machine.loops, machine.depth, machine.rounds = (Guard(swept=True),), (), 0, 0
        machine.active.clear()
        try:
            follow(machine, function, (), guessed_arguments(machine, function))
        except (Exhausted, RecursionError):
            continue
    machine.active.clear()
    machine.guards, machine.loops = (), ()


def _left(machine: Machine) -> list[Function]:
    """Of a program that was seen to train, only what something names; of one that is still being written, all."""
    functions = (each for each in machine.functions if isinstance(each, Function))
    found = [each for each in functions if id(each.node) not in machine.visited]
    if not found or not training.has_training_step(Seen(machine)):
        return found
    never = unused_lines(machine.trees.values(), _others(machine))
    return [each for each in found if (each.scope.file, each.node.lineno) not in never]


def _others(machine: Machine) -> Iterator[str]:
    sources = machine.sources
    yield from sources.arguments
    for name, data in sources.files.items():
        if name not in machine.trees:
            yield data[:MOST].decode(errors="replace")


def _of_gpus(machine: Machine, function: Function) -> bool:
    lines = machine.tree(function.scope.file).text.lines[function.node.lineno - 1 : function.node.end_lineno]
    text = "\n".join(lines)
    if not text.isascii():
        return _IN_ANY_CASE.search(text) is not None
    small = text.lower()  # plain text needs no pattern, which takes ten times as long
    return any(map(small.__contains__, _OF_GPUS))
