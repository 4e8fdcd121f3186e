"""`crucible config` and `crucible completion`: settings and shell completion."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.core.errors import UnknownName
from crucible.settings import HIDDEN, NAMES, SERVER_NAMES, Setting, default_user_config

Name = Annotated[str, typer.Argument(metavar="NAME", help="Setting; `crucible config` lists them.")]


def config(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show only this setting.")] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
) -> None:
    """Show the settings in effect."""
    cli = CommandContext.from_typer(ctx)
    if name is not None and name not in NAMES:
        raise UnknownName("setting", name, NAMES)
    values = {key: _display_value(cli, key) for key in NAMES if name in (None, key)}
    if cli.out.as_json:
        cli.out.json({key: {"value": value, "origin": where} for key, (value, where) in values.items()})
    elif name is not None and not origin:
        cli.out.data(values[name][0] or "")
    else:
        heads = ("SETTING", "VALUE", "FROM") if origin else ("SETTING", "VALUE")
        cli.out.table(heads, [(key, text or "", where)[: len(heads)] for key, (text, where) in values.items()])


def set_(
    ctx: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Value of the setting.")],
) -> None:
    """Set a setting in your config.toml, for all folders. Flags, variables and project files override it."""
    from crucible.client.server.user_config import set_setting

    cli = CommandContext.from_typer(ctx)
    path = default_user_config(cli.environ)
    set_setting(path, name, value)
    _print_json(cli, name, path, is_set=True)
    cli.out.say(f"{name} is set in {path}.{_restart_note(name)}")


def unset(ctx: typer.Context, name: Name) -> None:
    """Remove a setting from your config.toml."""
    from crucible.client.server.user_config import unset_setting

    cli = CommandContext.from_typer(ctx)
    path = default_user_config(cli.environ)
    was = unset_setting(path, name)
    _print_json(cli, name, path, is_set=False)
    cli.out.say(f"{name} is {'no longer set' if was else 'not set'} in {path}.{_restart_note(name) if was else ''}")


def _print_json(cli: CommandContext, name: str, path: Path, *, is_set: bool) -> None:
    """Print the change as JSON, without the value: it may be a secret."""
    if cli.out.as_json:
        cli.out.json({"name": name, "file": str(path), "set": is_set})


def _restart_note(name: str) -> str:
    """Return the note that a running server keeps the settings it started with."""
    return " A server reads it when it starts: crucible down, then crucible up." if name in SERVER_NAMES else ""


def _display_value(cli: CommandContext, name: str) -> tuple[str | None, str]:
    """Return the value as text, hidden if it may be a secret, and its origin."""
    setting: Setting[object] = getattr(cli.settings, name)
    value = setting.value
    if value is None:
        return None, setting.origin
    if name in HIDDEN and name != "store" and not str(value).startswith("postgres"):
        return "***", setting.origin
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text, setting.origin


FILES = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/crucible.fish",
}
"""The file each shell reads at its start."""


def completion(
    ctx: typer.Context,
    shell: Annotated[
        str | None, typer.Argument(metavar="[SHELL]", help=f"Shell: {', '.join(FILES)} (default: your own).")
    ] = None,
) -> None:
    """Print the shell completion script."""
    from typer._completion_shared import get_completion_script

    cli = CommandContext.from_typer(ctx)
    named = shell or PurePath(cli.environ.get("SHELL", "")).name
    if named not in FILES:
        raise UnknownName("shell", named, tuple(FILES))
    script = get_completion_script(prog_name="crucible", complete_var="_CRUCIBLE_COMPLETE", shell=named)
    if cli.out.as_json:
        cli.out.json({"shell": named, "file": FILES[named], "script": script})
        return
    cli.out.data(script)
    cli.out.say(f"To install it: crucible completion {named} >> {FILES[named]}, then open a new shell.")
