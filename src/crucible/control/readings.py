"""Readings: what programs need, each read once, in a process of its own and off the event loop."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from crucible.control.ports import Calls
from crucible.core.planask import Program, as_bytes
from crucible.core.profile import Profile

LANE = "reading"
SECONDS = 30.0
KEPT = 256


def read(program: Program) -> Profile:
    # Loads the reader of programs, which a server that is just starting has no use for.
    from crucible.analysis import Sources, analyse_within

    files = {path: as_bytes(text) for path, text in program.files.items()}
    return analyse_within(Sources(files, program.entry, program.arguments))


class Readings:
    def __init__(self, calls: Calls, read: Callable[[Program], Profile] = read) -> None:
        self._calls = calls
        self._read = read
        self._kept: OrderedDict[str, Profile] = OrderedDict()

    async def of(self, program: Program) -> Profile:
        name = program.digest
        found = self._kept.get(name)
        if found is None:
            found = await self._calls.run(LANE, lambda: self._read(program), SECONDS)
            self._kept[name] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        return found
