"""`python -m benchmarks.analysis`; see its README."""

import sys

from benchmarks.analysis.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
