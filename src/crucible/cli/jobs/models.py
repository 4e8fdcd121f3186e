"""`crucible models`: the model plugins installed in a Python environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.client.model_plugins import Plugin, find_plugin, list_plugins
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import SubmitHost, choose_environment
from crucible.wire.models.options import Option

Name = Annotated[str, typer.Argument(metavar="NAME", help="Model name; see `crucible models`.")]
Python = Annotated[
    str | None,
    typer.Option(
        "--python", metavar="PATH", help="Python interpreter or virtual environment (default: the one a job would use)."
    ),
]


def models(ctx: typer.Context, python: Python = None) -> None:
    """List the model plugins of a Python environment: packages with `crucible.models` entry points."""
    cli = CommandContext.from_typer(ctx)
    interpreter = _interpreter(cli, python)
    plugins = list_plugins(interpreter, cli.environ)
    if cli.out.as_json:
        cli.out.json({"python": interpreter, "items": [plugin.as_json() for plugin in plugins]})
    elif cli.out.quiet:
        for plugin in plugins:
            cli.out.data(plugin.name)
    elif not plugins:
        cli.out.say(f"No package in {interpreter} provides a model. docs/plugins.md shows how to write one.")
    else:
        cli.out.table(("MODEL", "VERSION", "CAN", "PACKAGE", "WHAT"), (_row(plugin) for plugin in plugins))
        _print_footer(cli, plugins, interpreter)


def show(ctx: typer.Context, name: Name, python: Python = None) -> None:
    """Show a model plugin's methods and options."""
    cli = CommandContext.from_typer(ctx)
    plugin = find_plugin(name, _interpreter(cli, python), cli.environ)
    if cli.out.as_json:
        cli.out.json(plugin.as_json())
        return
    cli.out.fields(_fields(plugin))
    cli.out.say(f"Train it: crucible train --model {name} --config KEY=VALUE" if "train" in plugin.methods else "")


def _interpreter(cli: CommandContext, python: str | None) -> str:
    choice = choose_environment(python, Code(), SubmitHost(cli.environ, cli.folder))
    for note in choice.notes:
        cli.out.warn(f"Note: {note}")
    assert choice.environment.interpreter is not None, "code without declarations gets an existing Python"
    return choice.environment.interpreter


def _row(plugin: Plugin) -> tuple[str, ...]:
    package = f"{plugin.distribution} {plugin.distribution_version}"
    what = plugin.description if plugin.problem is None else f"broken: {plugin.problem.text}"
    return plugin.name, plugin.version, ", ".join(plugin.methods), package, what


def _print_footer(cli: CommandContext, plugins: tuple[Plugin, ...], interpreter: str) -> None:
    cli.out.say(f"From {interpreter}. Details: crucible models show {plugins[0].name}")
    broken = [plugin.name for plugin in plugins if plugin.problem is not None]
    if broken:
        cli.out.warn(f"Broken: {', '.join(broken)}. For the traceback: crucible models show {broken[0]}")


def _fields(plugin: Plugin) -> Iterator[tuple[str, str | Sequence[str] | None]]:
    yield "Model", plugin.name
    yield "Title", plugin.title if plugin.title != plugin.name else None
    yield "Version", plugin.version
    yield "What", (plugin.description,)
    yield "Framework", plugin.framework
    yield "Can", ", ".join(plugin.methods)
    yield "GPU memory", f"{plugin.min_gpu_memory_gb:g} GB" if plugin.min_gpu_memory_gb else "none needed"
    yield "Package", f"{plugin.distribution} {plugin.distribution_version} ({plugin.entry})"
    yield "Python", plugin.python
    if plugin.schema is None:
        yield "Options", "not declared: any config is accepted"
    else:
        yield "Options", [_format_option(name, option) for name, option in plugin.schema.items()] or "none"


def _format_option(name: str, option: Option) -> str:
    """`epochs: int, 1 to 1000, default 10. Passes over the data.`"""
    low, high = option.minimum, option.maximum
    limits = {(True, True): f"{low} to {high}", (True, False): f"at least {low}", (False, True): f"at most {high}"}
    parts = [
        option.kind,
        limits.get((low is not None, high is not None), ""),
        f"one of {', '.join(map(str, option.choices))}" if option.choices else "",
        "required" if option.required else f"default {json.dumps(option.default, ensure_ascii=False)}",
    ]
    text = f"{name}: {', '.join(part for part in parts if part)}"
    return f"{text}. {option.help}" if option.help else text
