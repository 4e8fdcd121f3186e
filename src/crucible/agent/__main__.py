"""The agent's command line: `host --bootstrap FILE`, `runner FOLDER` (for debugging), `version`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from crucible import __version__
from crucible.agent.host.bootstrap import read_bootstrap
from crucible.agent.host.host import run_host
from crucible.agent.link.channels import check_channel
from crucible.agent.process.limits import LimitsProbe, choose_limiter
from crucible.agent.process.sampling import Probe, detect_devices
from crucible.agent.runner.attempt import run_attempt
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.runner import MachineFacts
from crucible.wire.documents.bootstrap import BadBootstrap
from crucible.wire.documents.crypto import NoCryptography

_FORMAT = "%(asctime)s %(process)d %(name)s %(message)s"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="agent.pyz")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("host").add_argument("--bootstrap", type=Path, required=True, metavar="FILE")
    commands.add_parser("runner").add_argument("folder", type=Path)
    commands.add_parser("version")
    args = parser.parse_args(argv)
    try:
        if args.command == "host":
            return _host(args.bootstrap)
        if args.command == "runner":
            return _runner(args.folder)
    except (BadBootstrap, NoCryptography) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{__version__}\n")
    return 0


def _host(file: Path) -> int:
    bootstrap = read_bootstrap(file)
    check_channel(bootstrap)
    bootstrap.work.mkdir(mode=0o700, parents=True, exist_ok=True)
    _log_to(bootstrap.work / "host.log")
    run_host(bootstrap, lambda: _log_to(bootstrap.work / "host.log"))
    return 0


def _runner(folder: Path) -> int:
    logging.basicConfig(level=logging.INFO, format=_FORMAT)
    devices = detect_devices(Probe())
    limiter = choose_limiter(LimitsProbe(folder=folder.parent.parent / "limits"))
    return run_attempt(AttemptFolder(folder.absolute()), MachineFacts(limiter, dict(os.environ), bool(devices.gpus)))


def _log_to(path: Path) -> None:
    """Log to the file, and redirect stdout and stderr there: nothing reads the streams of the parent process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (descriptor, 1), (descriptor, 2)):
        os.dup2(source, target)
    os.close(descriptor)
    os.close(null)
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr, force=True)


if __name__ == "__main__":
    sys.exit(main())
