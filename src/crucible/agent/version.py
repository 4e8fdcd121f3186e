"""Which version of Crucible this agent is."""

from __future__ import annotations

import sys


def version() -> str:
    """As the package says that this one is part of."""
    return str(sys.modules["crucible"].__version__)
