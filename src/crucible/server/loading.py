"""Loading libraries without what they take along wherever they find it installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Whoever looks for these packages here finds them missing; one that is loaded already stays.

    Only for libraries that do without them, and before anything runs beside. Afterwards they load as ever.
    """
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # Python's own sign that there is no such module
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
