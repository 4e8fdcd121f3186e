"""`python -m benchmarks.figures` is the second half of `make bench`."""

import sys

from benchmarks.figures.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
