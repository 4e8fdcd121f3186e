"""Start the cloud: `python -m crucible.backends.rehearsal.cloud --state DIR`, or `python PATH/cloud ...`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cloud", description="A simulated cloud on the loopback.")
    parser.add_argument("--state", type=Path, required=True, help="folder of instances, bill and keys")
    parser.add_argument("--port", type=int, default=0, help="0: the one it had before, or any that is free")
    parser.add_argument("--seed", type=int, default=0, help="of prices and faults")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster its time runs")
    parser.add_argument("--price-seconds", type=int, default=300, help="between two moves of spot prices")
    parser.add_argument("--detach", action="store_true", help="go on as nobody's child")
    return parser.parse_args()


def _by_path() -> None:
    """Run by path there is no package to be relative to: make this folder one, without its surroundings."""
    global __package__
    here = Path(__file__).resolve().parent
    sys.path[0] = str(here.parent)
    __package__ = here.name
    importlib.import_module(__package__)
    del sys.path[0]


def _detach() -> None:
    """The first process ends at once; the cloud is nobody's child and hears no terminal."""
    if os.fork():
        sys.exit()
    os.setsid()


if __name__ == "__main__":
    given = _arguments()
    if not __package__:
        _by_path()
    if given.detach:
        _detach()
    from .service import Options, serve

    sys.exit(serve(Options(given.state, given.port, given.seed, given.speed, given.price_seconds)))
