"""The agent's command line: `host --bootstrap FILE`, `runner FOLDER` (for debugging), `version`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from crucible.agent.attempt import run_attempt
from crucible.agent.bootstrap import BadBootstrap, Bootstrap
from crucible.agent.folders import AttemptFolder
from crucible.agent.host import run_host
from crucible.agent.limits import LimitsProbe, choose
from crucible.agent.machine import Machine
from crucible.agent.sampling import Probe, detect_devices
from crucible.agent.version import version

_USAGE = "usage: agent.pyz host --bootstrap FILE | runner FOLDER | version\n"
_FORMAT = "%(asctime)s %(process)d %(name)s %(message)s"


def main(argv: Sequence[str] | None = None) -> int:
    # Read by hand: a module that reads command lines would be loaded at every start, for these three.
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if len(words) == 3 and words[:2] == ["host", "--bootstrap"]:
            return _host(Path(words[2]))
        if len(words) == 2 and words[0] == "runner":
            return _runner(Path(words[1]))
    except BadBootstrap as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if words == ["version"]:
        sys.stdout.write(f"{version()}\n")
        return 0
    sys.stderr.write(_USAGE)
    return 2


def _host(file: Path) -> int:
    bootstrap = Bootstrap.read(file)
    bootstrap.work.mkdir(mode=0o700, parents=True, exist_ok=True)
    _log_to(bootstrap.work / "host.log")
    run_host(bootstrap, lambda: _log_to(bootstrap.work / "host.log"))
    return 0


def _runner(folder: Path) -> int:
    logging.basicConfig(level=logging.INFO, format=_FORMAT)
    devices = detect_devices(Probe())
    limiter = choose(LimitsProbe(folder=folder.parent.parent / "limits"))
    return run_attempt(AttemptFolder(folder.absolute()), Machine(limiter, dict(os.environ), bool(devices.gpus)))


def _log_to(path: Path) -> None:
    """Log to the file, and send there what anything prints: nobody reads the streams we were started with."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (descriptor, 1), (descriptor, 2)):
        os.dup2(source, target)
    os.close(descriptor)
    os.close(nothing)
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr, force=True)


if __name__ == "__main__":
    sys.exit(main())
