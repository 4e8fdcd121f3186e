"""Run the cloud: `python -m crucible.backends.rehearsal.cloud --state DIR`, or `python PATH/cloud ...`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cloud", description="A simulated cloud at a Unix socket.")
    parser.add_argument("--state", type=Path, required=True, help="folder for instances, bill and keys")
    parser.add_argument(
        "--port", type=int, default=0, help="TCP port of this computer to listen at too (default: 0, none)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of prices and faults (default: 0)")
    parser.add_argument("--speed", type=float, default=1.0, help="factor by which its time runs faster (default: 1)")
    parser.add_argument(
        "--price-seconds", type=int, default=300, help="seconds between changes of spot prices (default: 300)"
    )
    parser.add_argument("--detach", action="store_true", help="run in the background, detached from this process")
    return parser.parse_args()


def _become_package() -> None:
    """Make this folder a package, for relative imports when it is run by path, without importing the one above it."""
    global __package__
    here = Path(__file__).resolve().parent
    sys.path[0] = str(here.parent)
    __package__ = here.name
    importlib.import_module(__package__)
    del sys.path[0]


def _detach() -> None:
    """Continue in a child with its own session, out of reach of the terminal's signals, and exit the parent."""
    if os.fork():
        sys.exit()
    os.setsid()


if __name__ == "__main__":
    arguments = _parse_arguments()
    if not __package__:
        _become_package()
    if arguments.detach:
        _detach()
    from .service import Options, serve

    sys.exit(serve(Options(arguments.state, arguments.port, arguments.seed, arguments.speed, arguments.price_seconds)))
