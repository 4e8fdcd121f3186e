"""Profiles of programs, each analysed once for each caller, in a process with limits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING

from crucible.control.runtime.ports import Calls
from crucible.core.routing.plan_request import Program, as_bytes
from crucible.core.routing.profile import Profile

if TYPE_CHECKING:
    from crucible.analysis import AnalysisWorker

LANE = "analysis"
SECONDS = 30.0
MAX_CACHED = 256


class Profiles:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._cache: OrderedDict[tuple[Hashable, str], Profile] = OrderedDict()

    async def get(self, program: Program, authority: Hashable = None) -> Profile:
        """Return the program's profile, from the cache if a caller of the same authority asked for it before.

        Other callers share nothing: a fast response would show them which programs others have.
        """
        key = authority, program.digest
        profile = self._cache.get(key)
        if profile is None:
            profile = await self._calls.run(LANE, lambda: self._analyse(program), SECONDS)
            self._cache[key] = profile
            while len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return profile

    def close(self) -> None:
        """End the worker process."""
        if "_worker" in vars(self):
            self._worker.close()

    def _analyse(self, program: Program) -> Profile:
        from crucible.analysis import Sources

        files = {path: as_bytes(text) for path, text in program.files.items()}
        return self._worker.profile(Sources(files, program.entry, program.arguments))

    @cached_property
    def _worker(self) -> AnalysisWorker:
        # Imported here because loading the analysis would delay the start of a server.
        from crucible.analysis import AnalysisWorker

        return AnalysisWorker()
