"""`crucible models`: the model plugins of a Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.client.model_plugins import Plugin, find_plugin, list_plugins
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import SubmitHost, choose_environment
from crucible.wire.models.options import Option

Name = Annotated[str, typer.Argument(metavar="NAME", help="See `crucible models`.")]
Python = Annotated[
    str | None,
    typer.Option("--python", metavar="PATH", help="Interpreter or virtual environment; the job's own unless given."),
]


def models(ctx: typer.Context, python: Python = None) -> None:
    """List the model plugins of a Python: installed packages with entry points `crucible.models`."""
    session = Session.of(ctx)
    interpreter = _interpreter(session, python)
    found = list_plugins(interpreter, session.environ)
    if session.out.as_json:
        session.out.json({"python": interpreter, "items": [plugin.as_json() for plugin in found]})
    elif session.out.quiet:
        for plugin in found:
            session.out.data(plugin.name)
    elif not found:
        session.out.say(f"No package of {interpreter} offers a model. docs/plugins.md shows how to write one.")
    else:
        session.out.table(("MODEL", "VERSION", "CAN", "PACKAGE", "WHAT"), (_row(plugin) for plugin in found))
        _tell(session, found, interpreter)


def show(ctx: typer.Context, name: Name, python: Python = None) -> None:
    """Show one: what it is, what it can do, and its options."""
    session = Session.of(ctx)
    plugin = find_plugin(name, _interpreter(session, python), session.environ)
    if session.out.as_json:
        session.out.json(plugin.as_json())
        return
    session.out.fields(_fields(plugin))
    session.out.say(f"Train it: crucible train --model {name} --config KEY=VALUE" if "train" in plugin.methods else "")


def _interpreter(session: Session, python: str | None) -> str:
    choice = choose_environment(python, Code(), SubmitHost(session.environ, session.folder))
    for note in choice.notes:
        session.out.warn(f"Note: {note}")
    assert choice.environment.interpreter is not None, "code that declares nothing gets a Python that is there"
    return choice.environment.interpreter


def _row(plugin: Plugin) -> tuple[str, ...]:
    package = f"{plugin.distribution} {plugin.distribution_version}"
    what = plugin.description if plugin.problem is None else f"broken: {plugin.problem.text}"
    return plugin.name, plugin.version, ", ".join(plugin.methods), package, what


def _tell(session: Session, found: tuple[Plugin, ...], interpreter: str) -> None:
    session.out.say(f"Of {interpreter}. Show one: crucible models show {found[0].name}")
    broken = [plugin.name for plugin in found if plugin.problem is not None]
    if broken:
        session.out.warn(f"Broken: {', '.join(broken)}. The traceback: crucible models show {broken[0]}")


def _fields(plugin: Plugin) -> Iterator[tuple[str, str | None]]:
    yield "Model", plugin.name
    yield "Title", plugin.title if plugin.title != plugin.name else None
    yield "Version", plugin.version
    yield "What", plugin.description
    yield "Framework", plugin.framework
    yield "Can", ", ".join(plugin.methods)
    yield "GPU memory", f"{plugin.min_gpu_memory_gb:g} GB" if plugin.min_gpu_memory_gb else "none needed"
    yield "Package", f"{plugin.distribution} {plugin.distribution_version} ({plugin.entry})"
    yield "Python", plugin.python
    if plugin.schema is None:
        yield "Options", "not declared: any config is taken"
    else:
        yield "Options", "\n".join(_words(name, option) for name, option in plugin.schema.items()) or "none"


def _words(name: str, option: Option) -> str:
    """`epochs: int, 1 to 1000, default 10. Passes over the data.`"""
    low, high = option.minimum, option.maximum
    limits = {(True, True): f"{low} to {high}", (True, False): f"at least {low}", (False, True): f"at most {high}"}
    parts = [
        option.kind,
        limits.get((low is not None, high is not None), ""),
        f"one of {', '.join(map(str, option.choices))}" if option.choices else "",
        "required" if option.required else f"default {json.dumps(option.default, ensure_ascii=False)}",
    ]
    said = f"{name}: {', '.join(part for part in parts if part)}"
    return f"{said}. {option.help}" if option.help else said
