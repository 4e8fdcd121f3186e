"""`python -m crucible.app`."""

from __future__ import annotations

from crucible.app.command import leave_soon, main
from crucible.wire.leaving import leave

if __name__ == "__main__":
    leave(main(leave=leave_soon))
