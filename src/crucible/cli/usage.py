"""Turn typer's usage errors into errors of ours, with a fix."""

from __future__ import annotations

import difflib
import re
from typing import Any

from crucible.cli.command_table import ProgramCommand
from crucible.core.errors import BadInput

_BOUND = re.compile(r"(greater|less) than (or equal to )?(-?[0-9.]+)")
_EXTRA = re.compile(r"argument(?:s|\(s\))? \((.*)\)\s*$", re.DOTALL)


def usage_error(error: Any) -> BadInput:
    """Return a usage error as BadInput, with what is wrong and the fix."""
    return BadInput(_message(error), fix=_fix(error))


def _message(error: Any) -> str:
    name, param = getattr(error, "option_name", None), getattr(error, "param", None)
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return f"There is no option {name}."
    if kind == "MissingParameter" and param is not None:
        return f"{_display_name(param)} is missing."
    if kind == "BadParameter" and param is not None:
        return f"{_display_name(param)} {_requirement(error.message)}."
    if error.message.startswith("Got unexpected extra argument"):
        match = _EXTRA.search(error.message)
        return f"Too many arguments: {match[1]}." if match else "Too many arguments."
    message = str(error.format_message()).strip()
    return message if message.endswith(("?", ".")) else f"{message}."


def _display_name(param: Any) -> str:
    """Return an option's long form, or an argument's placeholder."""
    flags = [flag for flag in param.opts if flag.startswith("--")]
    return str(flags[0] if flags else param.metavar or param.name.upper())


def _requirement(message: str) -> str:
    bound = _BOUND.search(message)
    if bound is not None:
        size = {"greater": "at least" if bound[2] else "more than", "less": "at most" if bound[2] else "less than"}
        return f"must be {size[bound[1]]} {bound[3]}"
    if "integer" in message:
        return "must be a whole number"
    if "number" in message:
        return "must be a number"
    return f"is invalid: {message.rstrip('.')}"


def _fix(error: Any) -> str:
    context: Any = getattr(error, "ctx", None)
    possibilities = list(getattr(error, "possibilities", None) or ())  # the closest first
    if context is not None and isinstance(context.command, ProgramCommand) and _may_be_the_programs(error):
        suggestion = f"Did you mean {matches[0]}? " if (matches := _close_matches(error, possibilities)) else ""
        return f"{suggestion}Arguments of your own program go after --, as in: crucible run train.py -- --epochs 3"
    if possibilities:
        return f"Did you mean {possibilities[0]}?"
    return f"See `{getattr(context, 'command_path', 'crucible')} --help`."


def _close_matches(error: Any, possibilities: list[str]) -> list[str]:
    """Return typer's suggestions that differ by a typo at most."""
    return difflib.get_close_matches(getattr(error, "option_name", ""), possibilities, n=1, cutoff=0.8)


def _may_be_the_programs(error: Any) -> bool:
    return type(error).__name__ == "NoSuchOption" or "unexpected extra" in error.message
