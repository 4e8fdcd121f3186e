"""Command lines that cannot be read, told in our own words instead of the library's."""

from __future__ import annotations

import difflib
import re
from typing import Any

from crucible.cli.command_table import ProgramCommand
from crucible.core.errors import BadInput

_BOUND = re.compile(r"(greater|less) than (or equal to )?(-?[0-9.]+)")
_EXTRA = re.compile(r"argument(?:s|\(s\))? \((.*)\)\s*$", re.DOTALL)


def usage_error(error: Any) -> BadInput:
    """The same trouble as an error of ours: what is wrong, and the fix."""
    return BadInput(_what(error), fix=_fix(error))


def _what(error: Any) -> str:
    name, param = getattr(error, "option_name", None), getattr(error, "param", None)
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return f"There is no option {name}."
    if kind == "MissingParameter" and param is not None:
        return f"{_called(param)} is missing."
    if kind == "BadParameter" and param is not None:
        return f"{_called(param)} {_wanted(error.message)}."
    if error.message.startswith("Got unexpected extra argument"):
        found = _EXTRA.search(error.message)
        return f"Too many arguments: {found[1]}." if found else "Too many arguments."
    said = str(error.format_message()).strip()
    return said if said.endswith(("?", ".")) else f"{said}."


def _called(param: Any) -> str:
    """An option by its long form, an argument by what stands for it in the usage."""
    flags = [flag for flag in param.opts if flag.startswith("--")]
    return str(flags[0] if flags else param.metavar or param.name.upper())


def _wanted(message: str) -> str:
    bound = _BOUND.search(message)
    if bound is not None:
        size = {"greater": "at least" if bound[2] else "more than", "less": "at most" if bound[2] else "less than"}
        return f"must be {size[bound[1]]} {bound[3]}"
    if "integer" in message:
        return "must be a whole number"
    if "number" in message:
        return "must be a number"
    return f"cannot be that: {message.rstrip('.')}"


def _fix(error: Any) -> str:
    context: Any = getattr(error, "ctx", None)
    near = sorted(getattr(error, "possibilities", None) or ())
    if context is not None and isinstance(context.command, ProgramCommand) and _may_be_the_programs(error):
        meant = f"Did you mean {alike[0]}? " if (alike := _alike(error, near)) else ""
        return f"{meant}What your own program takes stands after --, as in: crucible run train.py -- --epochs 3"
    if near:
        return f"Did you mean {near[0]}?"
    return f"See `{getattr(context, 'command_path', 'crucible')} --help`."


def _alike(error: Any, near: list[str]) -> list[str]:
    """Of the library's suggestions those that are a slip away."""
    return difflib.get_close_matches(getattr(error, "option_name", ""), near, n=1, cutoff=0.8)


def _may_be_the_programs(error: Any) -> bool:
    return type(error).__name__ == "NoSuchOption" or "unexpected extra" in error.message
