"""What the reader knows of a variable when a program has been followed."""

from __future__ import annotations

import textwrap

from crucible.analysis.analyse import VERBS
from crucible.analysis.interpreter.imports import follow_file
from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.source.sources import Sources
from crucible.analysis.values.values import Value


def follow(code: str, *arguments: str) -> Machine:
    machine = Machine(VERBS, Sources({"a.py": textwrap.dedent(code).encode()}, "a.py", arguments), 200_000)
    follow_file(machine, "a.py")
    return machine


def value_of(code: str, name: str = "x") -> Value:
    return follow(code).modules["a.py"].names.get(name)
