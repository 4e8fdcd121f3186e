"""What every command works with: the shared options, the settings, the output, the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from crucible import __version__
from crucible.cli.command_table import ARGUMENTS, FLAGS
from crucible.cli.output.output import Output
from crucible.core.errors import BadInput
from crucible.settings import Settings, load_settings

if TYPE_CHECKING:
    from crucible.client.api import Api
    from crucible.client.server.embedded import Embedded


@dataclass(frozen=True)
class CommandContext:
    """One invocation of `crucible`. Commands call it `cli`; `ctx` is typer's own context."""

    flags: Mapping[str, object]
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @classmethod
    def from_typer(cls, ctx: typer.Context) -> CommandContext:
        return cls(dict(ctx.meta.get(FLAGS, {})), tuple(ctx.meta.get(ARGUMENTS, ())))

    @cached_property
    def out(self) -> Output:
        return Output(quiet=bool(self.flags.get("quiet")), as_json=bool(self.flags.get("json")), environ=self.environ)

    @cached_property
    def settings(self) -> Settings:
        return load_settings({"server": self.flags.get("server")}, environ=self.environ)

    @property
    def folder(self) -> Path:
        return Path.cwd()

    @cached_property
    def embedded_server(self) -> Embedded:
        from crucible.client.server.connection import make_embedded

        return make_embedded(self.settings, __version__, self.environ)

    @contextmanager
    def api(self) -> Iterator[Api]:
        """Connect to the server in use; the embedded one is started if it is not running."""
        from crucible.client.server.connection import connect

        api = connect(self.settings, self.embedded_server)
        try:
            yield api
        finally:
            api.close()

    @contextmanager
    def api_if_up(self) -> Iterator[Api | None]:
        """Connect to the server in use, or return None if it is not running."""
        from crucible.client.server.connection import connect_if_up

        api = connect_if_up(self.settings, self.embedded_server)
        try:
            yield api
        finally:
            if api is not None:
                api.close()

    def confirm(self, question: str, *, yes: bool, why: str = "") -> bool:
        """Ask on a terminal, after printing `why`. Raises BadInput without a terminal unless `yes`."""
        if yes:
            self.out.say(why) if why else None
            return True
        if not sys.stdin.isatty():
            no_terminal = "There is no terminal to confirm on."
            fix = "Add --yes to skip the confirmation."
            raise BadInput(f"Not confirmed: {question}", why=f"{why} {no_terminal}".strip(), fix=fix)
        self.out.say(why) if why else None
        return self.out.confirm(question)
