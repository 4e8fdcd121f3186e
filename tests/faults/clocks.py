"""A wall clock that a test sets, for the processes that are started under it; the computer's own goes on untouched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")


class WallClock:
    """`env` is for the processes. Clocks that nobody sets (monotonic, since boot) are theirs as ever."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall-clock"
        self.set("+0")

    def set(self, offset: str) -> None:
        """From now on this far from the computer's: `+2h`, `-2h`, `+10d`."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset}\n")
        fresh.replace(self._file)

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": _library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }


def _library() -> str:
    found = [str(path) for pattern in LIBRARIES for path in Path("/").glob(pattern[1:])]
    if not found:
        pytest.skip("libfaketime is not installed (apt-get install faketime)")
    return found[0]
