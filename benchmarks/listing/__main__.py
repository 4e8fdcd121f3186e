"""`python -m benchmarks.listing` is what `make bench` runs."""

import sys

from benchmarks.listing.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
