"""Config files that are programs: `get_config()` of ml_collections, chosen by a flag."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crucible.analysis.interpreter.imports import local_module
from crucible.analysis.library.call import Asked
from crucible.analysis.library.data.command_line import absl_flags, flags, note_option, put
from crucible.analysis.library.python.literals import literal
from crucible.analysis.values.values import UNKNOWN, Function, Thing, Value


def _define(asked: Asked) -> Value:
    """Define a flag for a config file: the file it names, its default, or a config beside the program."""
    name, default = asked.get(0, "name"), asked.get(1, "default")
    if not isinstance(name, str):
        return UNKNOWN
    given = flags(asked.machine.sources.arguments)
    config: Value = UNKNOWN
    for file, more in _candidates(asked, given.get(name, default)):
        config = _made_by(asked, file, more)
        if isinstance(config, Thing):
            break
    return _flag(asked, name, config)


def _define_dict(asked: Asked) -> Value:
    name = asked.get(0, "name")
    return _flag(asked, name, asked.get(1, "config")) if isinstance(name, str) else UNKNOWN


def _flag(asked: Asked, name: str, config: Value) -> Value:
    """Apply the overrides to the config, note its entries as options, and return the flag."""
    if isinstance(config, Thing):
        for path, text in flags(asked.machine.sources.arguments).items():
            if path.startswith(f"{name}."):
                put(config, path.split(".")[1:], literal(text))
        for key, value in config.attrs.items():
            note_option(asked.machine, key, value)
    absl_flags(asked.machine).attrs[name] = config
    return Thing("absl.flags.FlagHolder", where=asked.machine.line, attrs={"value": config})


def _candidates(asked: Asked, said: Value) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield candidates for the file and the argument of its function: `configs/small.py:depth` has both."""
    if isinstance(said, str) and said:
        file, _, more = said.partition(":")
        yield file, (more,) if more else ()
        while "/" in file:
            file = file.partition("/")[2]
            yield file, (more,) if more else ()
        return
    beside = [file for file in asked.machine.sources.files if file.startswith("configs/") and file.endswith(".py")]
    beside.sort(key=lambda file: ("default" not in file, file))
    for file in beside[:1]:
        yield file, ()


def _made_by(asked: Asked, file: str, given: tuple[str, ...]) -> Value:
    """Return the result of the file's `get_config`, or UNKNOWN."""
    if file not in asked.machine.sources.files:
        return UNKNOWN
    module = local_module(asked.machine, file.removesuffix(".py").replace("/", "."))
    begin = module.scope.names.get("get_config") if module is not None else None
    return asked.machine.call(begin, given, {}, asked.scope) if isinstance(begin, Function) else UNKNOWN


_HOMES = ("ml_collections.config_flags", "ml_collections.config_flags.config_flags")
HANDLERS: dict[str, Callable[[Asked], Value]] = {
    **{f"{home}.DEFINE_config_file": _define for home in _HOMES},
    **{f"{home}.DEFINE_config_dict": _define_dict for home in _HOMES},
}
