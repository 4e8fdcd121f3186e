"""Readings: what programs need, each read once for whoever asks, in processes of their own and off the event loop."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
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
        self._kept: OrderedDict[tuple[Hashable, str], Profile] = OrderedDict()

    async def of(self, program: Program, whose: Hashable = None) -> Profile:
        """`whose`: who has it read, and for whom the next one is read sooner then.

        What was read for him is told to nobody else: a program of his could have had a say in it.
        """
        key = whose, program.digest
        found = self._kept.get(key)
        if found is None:
            found = await self._calls.run(LANE, lambda: self._read(program, whose), SECONDS)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found

    def close(self) -> None:
        """Ends the processes that read."""
        if "_reader" in vars(self):
            self._reader.close()

    def _read(self, program: Program, whose: Hashable) -> Profile:
        from crucible.analysis import Sources

        files = {path: as_bytes(text) for path, text in program.files.items()}
        return self._reader.profile(Sources(files, program.entry, program.arguments), whose=whose)

    @cached_property
    def _reader(self) -> Reader:
        # Loads the reader of programs, which a server that is just starting has no use for.
        from crucible.analysis import Reader

        return Reader()
