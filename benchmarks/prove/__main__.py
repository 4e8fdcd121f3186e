"""`python -m benchmarks.prove` is what `make prove` runs."""

import sys

from benchmarks.prove.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
