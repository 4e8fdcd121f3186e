"""`python -m crucible` is the command `crucible`."""

import sys

from crucible.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
