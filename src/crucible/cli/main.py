"""Entry point of `crucible`: parse the command line, run one command, print errors, return the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any

import typer

from crucible import __version__
from crucible.cli.command_table import Debug, Json, LazyGroup, Quiet, Server
from crucible.core.errors import CrucibleError

INTERRUPTED = 130

app = typer.Typer(
    name="crucible",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"crucible {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
]


@app.callback()
def _root(
    version: Version = False,
    server: Server = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """One control plane for ML jobs on any compute.

    `crucible run train.py -- --epochs 3` works without any set-up.
    """


def main() -> int:
    sys.excepthook = _print_traceback
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Raises only with --debug."""
    try:
        command = typer.main.get_command(app)
        result = command.main(list(arguments), "crucible", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except CrucibleError as error:
        if _has_flag(arguments, "--debug"):
            raise
        return _print_error(error, _has_flag(arguments, "--json"))
    except typer.TyperException as error:
        return _print_usage_error(error, _has_flag(arguments, "--json"))
    except typer.Abort:
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _has_flag(arguments: Sequence[str], flag: str) -> bool:
    """Return whether a shared flag was given. Parsing may have failed before it got there, so look at the raw line."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return flag in ours


def _print_error(error: CrucibleError, as_json: bool) -> int:
    from crucible.cli.output.output import print_error

    print_error(error, as_json=as_json)
    return error.exit_code


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    from crucible.cli.output.output import print_traceback

    print_traceback(kind, error, trace)


def _print_usage_error(error: Any, as_json: bool) -> int:
    from crucible.cli.usage import usage_error

    if type(error).__name__ == "NoArgsIsHelpError" and not as_json:
        error.show()
        return int(error.exit_code)
    return _print_error(usage_error(error), as_json)
