"""Readings: what programs need, each read once, in processes of their own and off the event loop."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING

from crucible.control.ports import Calls
from crucible.core.planask import Program, as_bytes
from crucible.core.profile import Profile

if TYPE_CHECKING:
    from crucible.analysis import Reader

LANE = "reading"
SECONDS = 30.0
KEPT = 256


class Readings:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
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

    def close(self) -> None:
        """Ends the processes that read."""
        if "_reader" in vars(self):
            self._reader.close()

    def _read(self, program: Program) -> Profile:
        from crucible.analysis import Sources

        files = {path: as_bytes(text) for path, text in program.files.items()}
        return self._reader.profile(Sources(files, program.entry, program.arguments))

    @cached_property
    def _reader(self) -> Reader:
        # Loads the reader of programs, which a server that is just starting has no use for.
        from crucible.analysis import Reader

        return Reader()
