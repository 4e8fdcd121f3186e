"""The command line of a server."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from crucible.core.errors import BadInput


@dataclass(frozen=True)
class Options:
    """Options of `serve`. `port`, `agents_port` (default: those of the last run if they are free, else any)."""

    embedded: bool = False
    nonce: str = ""
    host: str = "127.0.0.1"
    port: int | None = None
    agents_port: int | None = None


def parse(arguments: Sequence[str]) -> Options:
    """Parse the command line of `serve`. Raises BadInput."""
    parser = Parser(prog="python -m crucible.app")
    serving = parser.add_subparsers(dest="command", required=True).add_parser("serve")
    serving.add_argument("--embedded", action="store_true", help="output already goes to server.log")
    serving.add_argument("--home", help="state folder (default: the setting)")
    serving.add_argument("--nonce", default="", help="ID of this run (default: random)")
    serving.add_argument(
        "--host",
        default=Options.host,
        help="address to listen on; other than loopback needs TLS and users (default: %(default)s)",
    )
    serving.add_argument("--port", type=_port, default=None)
    serving.add_argument("--agents-port", type=_port, default=None)
    args = parser.parse_args(arguments)
    nonce = args.nonce or secrets.token_hex(8)
    return Options(args.embedded, nonce, args.host, args.port, args.agents_port)


def with_home(arguments: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """Split `--home FOLDER` off the command line. Return the other arguments, and the flags for the settings."""
    parser = Parser(prog="python -m crucible.app", add_help=False, allow_abbrev=False)
    parser.add_argument("--home")
    args, rest = parser.parse_known_args(arguments)
    return rest, {"home": args.home}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises BadInput where argparse would exit."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message[:1].upper()}{message[1:]}.", fix="See `python -m crucible.app serve --help`.")


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise ValueError(text)
    return number
