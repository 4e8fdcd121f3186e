"""Options from the command line or their defaults: argparse, click, typer, absl, hydra and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crucible.analysis.interpreter.machine import Machine
from crucible.analysis.library.call import Asked
from crucible.analysis.library.data.configs import namespace
from crucible.analysis.library.python.literals import as_type, literal, read_yaml
from crucible.analysis.library.python.standard import file_text
from crucible.analysis.values.facts import Assigned
from crucible.analysis.values.scope import Scope
from crucible.analysis.values.values import UNKNOWN, Bound, Class, Function, Instance, Name, Thing, Value

_PARSER = "argparse.ArgumentParser"
_SET = {"store_true": True, "store_false": False}


def flags(arguments: tuple[str, ...]) -> dict[str, str]:
    """Return the flags of a command line: `--name value`, `--name=value`, `name=value`; a flag alone is `true`."""
    found: dict[str, str] = {}
    waiting = ""
    for each in arguments:
        if each.startswith("-") and not _number(each):
            name, given, value = each.lstrip("-").partition("=")
            waiting = "" if given else name
            found[name.replace("-", "_")] = value if given else "true"
        elif waiting:
            found[waiting.replace("-", "_")] = each
            waiting = ""
        elif "=" in each:
            name, _, value = each.partition("=")
            found[name.lstrip("+")] = value
    return found


def _number(text: str) -> bool:
    return text[1:2].isdigit() or text[1:2] == "."


def positionals(arguments: tuple[str, ...]) -> list[str]:
    """Return the words before the first flag: those after it may be values of flags."""
    found = []
    for each in arguments:
        if each.startswith("-"):
            break
        found.append(each)
    return found


def note_option(machine: Machine, name: str, value: Value) -> None:
    """Note an option and its value as a fact."""
    if len(machine.facts.options) < 2_000:
        machine.facts.options.append(Assigned(name, value, machine.line))


def _parser(asked: Asked) -> Value:
    return Thing(_PARSER, where=asked.machine.line, attrs={"flags": []})


def _group(asked: Asked) -> Value:
    return asked.owner


def _add(asked: Asked) -> Value:
    owner = asked.owner
    if not isinstance(owner, Thing):
        return UNKNOWN
    names = [each for each in asked.args if isinstance(each, str)]
    if names:
        flag = Thing("flag", tuple(names), asked.kwargs, asked.machine.line)
        known = owner.attrs.setdefault("flags", [])
        if len(known) < 2_000:
            known.append(flag)
    return UNKNOWN


def _set_defaults(asked: Asked) -> Value:
    if isinstance(asked.owner, Thing):
        asked.owner.attrs.setdefault("set", {}).update(asked.kwargs)
    return None


def destination(flag: Thing) -> str:
    """Return the attribute name of a flag's value."""
    chosen = flag.kwargs.get("dest")
    if isinstance(chosen, str):
        return chosen
    long = [each for each in flag.args if each.startswith("--")]
    return str((long or list(flag.args))[0]).lstrip("-").replace("-", "_")


def _parse(asked: Asked) -> Value:
    """Return the namespace of `parse_args()`, and note each option at the line of its flag."""
    owner = asked.owner
    if not isinstance(owner, Thing):
        return UNKNOWN
    given_list = asked.get(0, "args")
    listed = isinstance(given_list, list | tuple) and all(isinstance(each, str) for each in given_list)
    line = tuple(given_list) if listed and given_list else asked.machine.sources.arguments
    made = Thing("namespace", where=asked.machine.line)
    words = positionals(line)
    changed = owner.attrs.get("set", {})
    for flag in owner.attrs.get("flags", []):
        name = destination(flag)
        value = _flag_value(flag, flags(line), words)
        made.attrs[name] = changed.get(name, value) if value == flag.kwargs.get("default") else value
        place, asked.machine.line = asked.machine.line, flag.where
        note_option(asked.machine, name, made.attrs[name])
        asked.machine.line = place
    return (made, []) if asked.name == "parse_known_args" else made


def _flag_value(flag: Thing, given: dict[str, str], words: list[str]) -> Value:
    """Return the value of a flag from the command line, or its default."""
    action = flag.kwargs.get("action")
    kind = flag.kwargs.get("type")
    for name in flag.args:
        written = name.lstrip("-").replace("-", "_")
        if name.startswith("-") and written in given:
            return _SET[action] if action in _SET else as_type(given[written], kind)
        if f"no_{written}" in given and isinstance(action, Name):
            return False
    if not flag.args[0].startswith("-") and words:
        return as_type(words.pop(0), kind)
    if action in _SET:
        return flag.kwargs.get("default", not _SET[action])
    default = flag.kwargs.get("default")
    if isinstance(default, str) and isinstance(kind, Name):
        return as_type(default, kind)
    if default is None and flag.kwargs.get("required") is True:
        return UNKNOWN
    return default if default is not None or flag.args[0].startswith("-") else UNKNOWN


def _from_class(asked: Asked) -> Value:
    """Return an object whose fields are flags: `tyro.cli(Args)`, `HfArgumentParser`, `simple_parsing`."""
    return dressed(asked, asked.get(0, "cls"))


def dressed(asked: Asked, cls: Value) -> Value:
    """Return an object of the class, or the result of the function, with the flags applied."""
    if isinstance(cls, Function):
        return asked.machine.call(cls, (), _given_to(asked, cls), asked.scope)
    if isinstance(cls, Name):
        made = Thing(cls.path, (), _for_library(asked), asked.machine.line)
        asked.machine.note_call(cls.path, (), made.kwargs, None, made)
        return made
    if not isinstance(cls, Class):
        return Thing("namespace")
    filled = asked.machine.call(cls, (), {}, asked.scope)
    if isinstance(filled, Instance):
        given = _for_library(asked)
        for name in cls.all_fields():
            if name in given:
                filled.attrs[name] = given[name]
            note_option(asked.machine, name, filled.attrs.get(name, UNKNOWN))
        for base in cls.outside:
            asked.machine.note_call(base, (), {**_for_library(asked), **filled.attrs}, None, filled)
    return filled


def _for_library(asked: Asked) -> dict[str, Value]:
    """Return all flags: TrainingArguments and the like accept any they know. A parser may change their defaults."""
    changed = asked.owner.attrs.get("set", {}) if isinstance(asked.owner, Thing) else {}
    return changed | {name: literal(text) for name, text in flags(asked.machine.sources.arguments).items()}


def _hf_parser(asked: Asked) -> Value:
    return asked.thing()


def _hf_parse(asked: Asked) -> Value:
    owner = asked.owner
    kinds = owner.argument(0, "dataclass_types") if isinstance(owner, Thing) else None
    kinds = kinds if isinstance(kinds, list | tuple) else [kinds]
    return tuple(dressed(asked, each) for each in kinds)


def _given_to(asked: Asked, function: Function) -> dict[str, Value]:
    """Return the flags that are arguments of the function."""
    given = flags(asked.machine.sources.arguments)
    names = [each.arg for each in (*function.node.args.args, *function.node.args.kwonlyargs)]
    return {name: literal(given[name]) for name in names if name in given}


def _absl_define(asked: Asked) -> Value:
    name, default = asked.get(0, "name"), asked.get(1, "default")
    if not isinstance(name, str):
        return UNKNOWN
    given = flags(asked.machine.sources.arguments)
    value = literal(given[name]) if name in given else default
    absl_flags(asked.machine).attrs[name] = value
    note_option(asked.machine, name, value)
    return Thing("absl.flags.FlagHolder", where=asked.machine.line, attrs={"value": value})


def absl_flags(machine: Machine) -> Thing:
    """Return the namespace of all absl flags."""
    home = machine.modules.setdefault("\0absl", Scope("\0absl"))
    found = home.names.setdefault("FLAGS", Thing("namespace"))
    assert isinstance(found, Thing)
    return found


def _run_main(asked: Asked) -> Value:
    """Run the main function of `app.run(main)`, `typer.run(main)` or `fire.Fire(main)` with the flags."""
    target = asked.get(0, "main")
    if isinstance(target, Class | Instance | dict) and asked.path.startswith("fire"):
        return _run_one_of(asked, target)
    if isinstance(target, Thing) and "function" in target.attrs:
        return run_command(asked.machine, target)
    if not isinstance(target, Function):
        return UNKNOWN
    args: tuple[Value, ...] = (UNKNOWN,) if asked.path.startswith("absl") else ()
    given = {**_typer_defaults(asked.machine, target), **_given_to(asked, target)}
    for name, default in target.defaults.items():
        note_option(asked.machine, name, given.get(name, default))
    return asked.machine.call(target, args, given, asked.scope)


def _run_one_of(asked: Asked, target: Value) -> Value:
    """Run what Fire would of a class, object or dict: the member named by the first word, or else all of them."""
    if isinstance(target, Class):
        target = dressed(asked, target)
    names = target.cls.names if isinstance(target, Instance) else target if isinstance(target, dict) else {}
    said = positionals(asked.machine.sources.arguments)[:1]
    for name in [each for each in names if str(each) in said] or [each for each in names if str(each)[:1] != "_"]:
        each = asked.machine.attribute(target, name) if isinstance(target, Instance) else names[name]
        if isinstance(each, Bound | Function):
            function = each.function if isinstance(each, Bound) else each
            asked.machine.call(each, (), _given_to(asked, function), asked.scope)
    return UNKNOWN


def command_made_by(machine: Machine, path: str, decorator: Value, result: Value) -> Value:
    """Return the command made by `@click.command()`, `@click.option(...)`, `@app.command()` or `@hydra.main(...)`."""
    if isinstance(result, Thing) and result.path == "command":
        made = result
    elif isinstance(result, Function):
        made = Thing("command", where=machine.line, attrs={"function": result, "flags": []})
    else:
        return result
    if path in ("click.option", "click.argument") and isinstance(decorator, Thing):
        names = tuple(each for each in decorator.args if isinstance(each, str))
        if names:
            made.attrs["flags"].append(Thing("flag", names, decorator.kwargs, machine.line))
    elif path == "hydra.main" and isinstance(decorator, Thing):
        made.attrs["hydra"] = decorator
    elif path == "typer.command" and isinstance(decorator, Thing) and isinstance(decorator.attrs.get("app"), Thing):
        decorator.attrs["app"].attrs.setdefault("commands", []).append(made)
    return made


def run_command(machine: Machine, command: Thing) -> Value:
    """Run the function of a command with its flags."""
    function = command.attrs["function"]
    if not isinstance(function, Function):
        return UNKNOWN
    given = flags(machine.sources.arguments)
    words = positionals(machine.sources.arguments)
    values: dict[str, Value] = _typer_defaults(machine, function)
    for flag in command.attrs["flags"]:
        if flag.kwargs.get("is_flag") is True and "action" not in flag.kwargs:
            flag.kwargs["action"] = "store_true"
        values[destination(flag)] = _flag_value(flag, given, words)
        note_option(machine, destination(flag), values[destination(flag)])
    args: tuple[Value, ...] = ()
    if "hydra" in command.attrs:
        args = (_hydra_config(machine, command.attrs["hydra"], given),)
    values.update(_written(function, given))
    return machine.call(function, args, values, function.scope)


def _written(function: Function, given: dict[str, str]) -> Iterator[tuple[str, Value]]:
    """Yield the function's arguments that are given as flags."""
    for each in (*function.node.args.args, *function.node.args.kwonlyargs):
        if each.arg in given:
            yield each.arg, literal(given[each.arg])


def _typer_defaults(machine: Machine, function: Function) -> dict[str, Value]:
    """Return the defaults of arguments declared as `typer.Option(5)`."""
    found: dict[str, Value] = {}
    for name, default in function.defaults.items():
        if isinstance(default, Thing) and default.path in ("typer.Option", "typer.Argument"):
            found[name] = default.argument(0, "default", UNKNOWN)
            note_option(machine, name, found[name])
    return found


def _hydra_config(machine: Machine, decorator: Thing, given: dict[str, str]) -> Value:
    """Return the config of a hydra program with its overrides applied, or UNKNOWN."""
    folder, name = decorator.kwargs.get("config_path", ""), decorator.kwargs.get("config_name", "config")
    name = name if isinstance(name, str) else "config"
    stem = name.removesuffix(".yaml")
    folder = folder if isinstance(folder, str) else ""
    asked = Asked(machine, "hydra", (), {}, machine.modules[machine.sources.entry])
    text = next(
        (
            found
            for place in (f"{folder}/{stem}.yaml", f"{stem}.yaml")
            if (found := file_text(asked, place)) is not None
        ),
        None,
    )
    config = namespace(read_yaml(text)) if text is not None else UNKNOWN
    if isinstance(config, Thing):
        for path, value in given.items():
            put(config, path.split("."), literal(value))
        for key, value in config.attrs.items():
            note_option(machine, key, value)
    return config


def put(config: Thing, path: list[str], value: Value) -> None:
    """Set the value at a dotted path of a config."""
    for part in path[:-1]:
        inner = config.attrs.setdefault(part, Thing("namespace"))
        if not isinstance(inner, Thing):
            return
        config = inner
    config.attrs[path[-1]] = value


def _typer_app(asked: Asked) -> Value:
    return asked.thing()


def _app_command(asked: Asked) -> Value:
    """Return the decorator `@app.command()`, which keeps the application it belongs to."""
    return Thing("typer.command", where=asked.machine.line, attrs={"app": asked.owner})


HANDLERS: dict[str, Callable[[Asked], Value]] = {
    _PARSER: _parser, f"{_PARSER}.add_argument": _add, f"{_PARSER}.add_argument_group": _group,
    f"{_PARSER}.add_mutually_exclusive_group": _group, f"{_PARSER}.set_defaults": _set_defaults,
    f"{_PARSER}.parse_args": _parse, f"{_PARSER}.parse_known_args": _parse,
    "configargparse.ArgumentParser": _parser, "jsonargparse.ArgumentParser": _parser,
    "tyro.cli": _from_class, "simple_parsing.parse": _from_class, "chz.entrypoint": _from_class,
    "pyrallis.parse": _from_class,
    "transformers.HfArgumentParser": _hf_parser, "trl.TrlParser": _hf_parser,
    "transformers.HfArgumentParser.parse_args_into_dataclasses": _hf_parse,
    "transformers.HfArgumentParser.set_defaults": _set_defaults, "trl.TrlParser.set_defaults": _set_defaults,
    "transformers.HfArgumentParser.parse_json_file": _hf_parse, "trl.TrlParser.parse_args_and_config": _hf_parse,
    **{f"absl.flags.DEFINE_{kind}": _absl_define for kind in ("integer", "float", "string", "bool", "boolean", "enum")},
    "absl.app.run": _run_main, "typer.run": _run_main, "fire.Fire": _run_main, "typer.Typer": _typer_app,
    "typer.Typer.command": _app_command,
}  # fmt: skip
