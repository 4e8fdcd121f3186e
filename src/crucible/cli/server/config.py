"""`crucible config`: the settings in force, where each comes from, and the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.core.errors import UnknownName
from crucible.settings import HIDDEN, NAMES, SERVER_NAMES, Setting, default_user_config

Name = Annotated[str, typer.Argument(metavar="NAME", help="A setting; `crucible config` lists them.")]


def config(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also where each comes from.")] = False,
) -> None:
    """Show the settings in force here."""
    session = Session.of(ctx)
    if name is not None and name not in NAMES:
        raise UnknownName("setting", name, NAMES)
    shown = {key: _shown(session, key) for key in NAMES if name in (None, key)}
    if session.out.as_json:
        session.out.json({key: {"value": value, "origin": where} for key, (value, where) in shown.items()})
    elif name is not None and not origin:
        session.out.data(shown[name][0] or "")
    else:
        heads = ("SETTING", "VALUE", "FROM") if origin else ("SETTING", "VALUE")
        session.out.table(heads, [(key, said or "", where)[: len(heads)] for key, (said, where) in shown.items()])


def set_(
    ctx: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value.")],
) -> None:
    """Set one in your own config.toml, for all folders. A flag, a variable or a project's file still wins."""
    from crucible.client.server.user_config import set_setting

    session = Session.of(ctx)
    path = default_user_config(session.environ)
    set_setting(path, name, value)
    _tell(session, name, path, is_set=True)
    session.out.say(f"{name} is set in {path}.{_from_when(name)}")


def unset(ctx: typer.Context, name: Name) -> None:
    """Take one out of your own config.toml."""
    from crucible.client.server.user_config import unset_setting

    session = Session.of(ctx)
    path = default_user_config(session.environ)
    was = unset_setting(path, name)
    _tell(session, name, path, is_set=False)
    session.out.say(f"{name} is {'no longer set' if was else 'not set'} in {path}.{_from_when(name) if was else ''}")


def _tell(session: Session, name: str, path: Path, *, is_set: bool) -> None:
    """For programs. Not the value: it may be a secret, and whoever set it has it."""
    if session.out.as_json:
        session.out.json({"name": name, "file": str(path), "set": is_set})


def _from_when(name: str) -> str:
    """A server that is up goes on with what it read when it started."""
    return " A server reads it when it starts: crucible down, then crucible up." if name in SERVER_NAMES else ""


def _shown(session: Session, name: str) -> tuple[str | None, str]:
    """The value as text, hidden where it may be a secret, and who said it."""
    setting: Setting[object] = getattr(session.settings, name)
    value = setting.value
    if value is None:
        return None, setting.origin
    if name in HIDDEN and name != "store" and not str(value).startswith("postgres"):
        return "***", setting.origin
    said = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return said, setting.origin
