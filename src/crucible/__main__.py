"""`python -m crucible` is the command `crucible`."""

from crucible.cli.main import main

if __name__ == "__main__":
    main()
