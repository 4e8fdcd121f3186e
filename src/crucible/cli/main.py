"""`crucible`: reads the command line, runs one command, tells errors, returns the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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


def _version(wanted: bool) -> None:
    if wanted:
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

    `crucible run train.py -- --epochs 3` needs no set-up.
    """


def main() -> int:
    return run(sys.argv[1:])


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code, and lets nothing out but with --debug."""
    try:
        command = typer.main.get_command(app)
        result = command.main(list(arguments), "crucible", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except CrucibleError as error:
        if _given(arguments, "--debug"):
            raise
        return _tell(error, _given(arguments, "--json"))
    except typer.TyperException as error:
        return _tell_usage(error, _given(arguments, "--json"))
    except typer.Abort:
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _given(arguments: Sequence[str], flag: str) -> bool:
    """Whether a shared flag was given; asked when reading the line may have ended before it was reached."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return flag in ours


def _tell(error: CrucibleError, as_json: bool) -> int:
    from crucible.cli.output.output import tell_error

    tell_error(error, as_json=as_json)
    return error.exit_code


def _tell_usage(error: Any, as_json: bool) -> int:
    from crucible.cli.usage import usage_error

    if type(error).__name__ == "NoArgsIsHelpError" and not as_json:
        error.show()
        return int(error.exit_code)
    return _tell(usage_error(error), as_json)
