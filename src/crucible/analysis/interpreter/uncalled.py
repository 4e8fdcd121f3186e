"""Follows each function that no code calls once: a framework may call it."""

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
"""Steps for each function."""

PLENTY = 1_500
"""Steps for all functions. Beyond, only those that mention a GPU are followed: none of 589 programs showed anything
new with more."""

SWEPT = 200
"""Functions to follow."""

MOST = 100_000
"""Bytes of a file outside the program to search for names."""

_OF_GPUS = ("cuda", "gpu", "device", "nccl", "distributed")
_IN_ANY_CASE = re.compile("|".join(_OF_GPUS), re.IGNORECASE)


def sweep(machine: Machine) -> None:
    """Follow the functions that were not called, under a guard that marks their facts."""
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
    """Return the functions not yet followed; in a program that trains, only those that something names."""
    functions = (each for each in machine.functions if isinstance(each, Function))
    found = [each for each in functions if id(each.node) not in machine.visited]
    if not found or not training.has_training_step(Seen(machine)):
        return found
    never = unused_lines(machine.trees.values(), _others(machine))
    return [each for each in found if (each.scope.file, each.node.lineno) not in never]


def _others(machine: Machine) -> Iterator[str]:
    """Yield the texts besides the followed files that may name a function."""
    sources = machine.sources
    yield from sources.arguments
    for name, data in sources.files.items():
        if name not in machine.trees:
            yield data[:MOST].decode(errors="replace")


def _of_gpus(machine: Machine, function: Function) -> bool:
    """Return whether the text of the function mentions a GPU."""
    lines = machine.tree(function.scope.file).text.lines[function.node.lineno - 1 : function.node.end_lineno]
    text = "\n".join(lines)
    if not text.isascii():
        return _IN_ANY_CASE.search(text) is not None
    small = text.lower()  # for ASCII, lower() is enough; the pattern takes ten times as long
    return any(map(small.__contains__, _OF_GPUS))
