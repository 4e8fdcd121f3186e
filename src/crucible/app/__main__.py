"""`python -m crucible.app`."""

from __future__ import annotations

import sys

from crucible.app.command import exit_soon, main

if __name__ == "__main__":
    sys.exit(main(leave=exit_soon))
