"""The table of commands, and the group that loads a command's module only when it is used."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

FLAGS = "crucible.flags"
"""Key of `ctx.meta` for the shared options, whether given before or after the command's name."""

ARGUMENTS = "crucible.arguments"
"""Key of `ctx.meta` for the arguments after `--`."""


SETTING_OPTIONS = "crucible.setting_options"
"""Key of `ctx.meta` for the options that are settings of a backend, as pairs of name and value."""


@dataclass(frozen=True)
class CommandRow:
    """A command: its name, its `module:function` under crucible.cli, and one line of help."""

    name: str
    target: str
    help: str
    arguments: bool = False
    """Whether everything after `--` is passed to the user's program."""

    setting_options: bool = False
    """It takes the settings of a backend, which only the server knows, as options: `ctx.meta[SETTING_OPTIONS]`."""

    rows: tuple[CommandRow, ...] = ()
    """Subcommands. Without one, `target` runs; an empty `target` shows the help."""


COMMANDS = (
    CommandRow("run", "jobs.run:run", "Run a script, directory, notebook, git URL, code or job file.", arguments=True),
    CommandRow("train", "jobs.run:train", "Train a model, by name or with a script.", arguments=True),
    CommandRow("infer", "jobs.run:infer", "Get predictions from a model or a script.", arguments=True),
    CommandRow("benchmark", "jobs.run:benchmark", "Benchmark a model, by name or with a script.", arguments=True),
    CommandRow("plan", "jobs.run:plan", "Show where a job would run and what it would cost.", arguments=True),
    CommandRow(
        "predictions",
        "compute.predictions:predictions",
        "List predicted and actual job run times.",
    ),
    CommandRow("status", "jobs.jobs:status", "Show all active jobs, or one job in detail."),
    CommandRow("jobs", "jobs.jobs:jobs", "List jobs, newest first."),
    CommandRow("logs", "jobs.logs:logs", "Print a job's output; -f follows it."),
    CommandRow("attach", "jobs.logs:attach", "Attach to a running job and show its output from now on."),
    CommandRow("exec", "jobs.exec:exec_", "Run a command or open a shell inside a running job.", arguments=True),
    CommandRow("ports", "jobs.ports:ports", "Forward a running job's ports to this computer, or list them."),
    CommandRow("metrics", "jobs.metrics:metrics", "Show a job's metrics as sparklines."),
    CommandRow("health", "jobs.health:health", "Show a job's health, with causes and advice."),
    CommandRow("check", "jobs.health:health", "Alias of health."),
    CommandRow("compare", "jobs.metrics:compare", "Compare jobs: settings, metrics, duration, cost."),
    CommandRow("events", "jobs.jobs:events", "List a job's events."),
    CommandRow("cancel", "jobs.cancel:cancel", "Cancel jobs."),
    CommandRow("tag", "jobs.labels:tag", "Add, remove or list a job's tags."),
    CommandRow("note", "jobs.labels:note", "Add, delete or list a job's notes."),
    CommandRow("rename", "jobs.labels:rename", "Rename a job."),
    CommandRow("resume", "jobs.resume:resume", "Resume an ended job from a checkpoint."),
    CommandRow("rerun", "jobs.resume:rerun", "Run a job again with the same code, arguments and seed."),
    CommandRow("checkpoints", "jobs.outputs:checkpoints", "List, request or download a job's checkpoints."),
    CommandRow("download", "jobs.outputs:download", "Download a job's artifacts."),
    CommandRow(
        "templates",
        "jobs.templates:templates",
        "List ready-made workloads.",
        rows=(
            CommandRow("list", "jobs.templates:templates", "List ready-made workloads."),
            CommandRow("show", "jobs.templates:show", "Show a template's presets, files and requirements."),
            CommandRow("copy", "jobs.templates:copy", "Copy a template into a folder."),
        ),
    ),
    CommandRow(
        "models",
        "jobs.models:models",
        "List the model plugins installed in a Python environment.",
        rows=(
            CommandRow("list", "jobs.models:models", "List the model plugins installed in a Python environment."),
            CommandRow("show", "jobs.models:show", "Show a model plugin's methods and options."),
        ),
    ),
    CommandRow("client", "jobs.client:client", "Submit and monitor training tasks."),
    CommandRow(
        "backends",
        "compute.backends:backends",
        "List backends that can run jobs; connect, check or disconnect one.",
        rows=(
            CommandRow("list", "compute.backends:backends", "List backends that can run jobs."),
            CommandRow(
                "connect",
                "compute.connections:connect",
                "Connect the server to a backend, or change its settings.",
                setting_options=True,
            ),
            CommandRow(
                "disconnect",
                "compute.connections:disconnect",
                "Disconnect a backend once its machines are gone.",
            ),
            CommandRow("show", "compute.connections:show", "Show a backend's settings."),
            CommandRow("check", "compute.connections:check", "Check a backend.", setting_options=True),
        ),
    ),
    CommandRow("tiers", "compute.backends:tiers", "List tiers (named sizes)."),
    CommandRow(
        "catalog",
        "compute.catalog:catalog",
        "List rentable instance types and prices; audit or refresh prices.",
        rows=(
            CommandRow("list", "compute.catalog:catalog", "List rentable instance types, cheapest first."),
            CommandRow("show", "compute.catalog:show", "Show an instance type's size and prices in every region."),
            CommandRow("gpus", "compute.catalog:gpus", "List GPU types: memory, bandwidth, peak rates."),
            CommandRow("refresh", "compute.prices:refresh", "Fetch current prices from providers."),
            CommandRow("audit", "compute.prices:audit", "Check the prices in use, or compare them with another table."),
        ),
    ),
    CommandRow(
        "machines",
        "compute.machines:machines",
        "List machines in use; terminate machines; find orphans.",
        rows=(
            CommandRow("list", "compute.machines:machines", "List machines in use."),
            CommandRow("terminate", "compute.machines:terminate", "Terminate machines and everything running on them."),
            CommandRow("orphans", "compute.machines:orphans", "List machines tagged as ours that should not exist."),
        ),
    ),
    CommandRow("prune", "server.prune:prune", "Delete old jobs, checkpoints, artifacts and logs."),
    CommandRow(
        "db",
        "",
        "Back up or restore the database.",
        rows=(
            CommandRow("backup", "server.database:backup", "Back up the database to a file while the server runs."),
            CommandRow("restore", "server.database:restore", "Restore the embedded server's database from a backup."),
            CommandRow(
                "confirm",
                "server.database:confirm",
                "After a restore, allow machines to be launched and terminated again.",
            ),
        ),
    ),
    CommandRow(
        "users",
        "people.users:users",
        "List users; add, change, disable or enable a user.",
        rows=(
            CommandRow("list", "people.users:users", "List users."),
            CommandRow("add", "people.users:add", "Add a user."),
            CommandRow(
                "password", "people.users:password", "Set a user's password and revoke their sessions and tokens."
            ),
            CommandRow("email", "people.users:email", "Set the e-mail address a user signs in with (OpenID)."),
            CommandRow("tie", "people.users:tie", "Link a user to an OpenID subject."),
            CommandRow("disable", "people.users:disable", "Disable a user and revoke their tokens."),
            CommandRow("enable", "people.users:enable", "Enable a disabled user."),
        ),
    ),
    CommandRow(
        "projects",
        "people.projects:projects",
        "List projects; add a project; manage its members.",
        rows=(
            CommandRow("list", "people.projects:projects", "List the projects you can see."),
            CommandRow("add", "people.projects:add", "Add a project."),
            CommandRow("members", "people.projects:members", "List a project's members."),
            CommandRow("grant", "people.projects:grant", "Give a user a role in a project."),
            CommandRow("remove", "people.projects:remove", "Remove a user from a project."),
        ),
    ),
    CommandRow(
        "tokens",
        "people.tokens:tokens",
        "List your tokens; create or revoke tokens.",
        rows=(
            CommandRow("list", "people.tokens:tokens", "List your tokens, sessions and share links."),
            CommandRow("create", "people.tokens:create", "Create a token for a program."),
            CommandRow("revoke", "people.tokens:revoke", "Revoke tokens."),
        ),
    ),
    CommandRow(
        "secrets",
        "people.secrets:secrets",
        "List a project's secrets; set or remove a secret; rotate the keys.",
        rows=(
            CommandRow("list", "people.secrets:secrets", "List the names of a project's secrets."),
            CommandRow(
                "set", "people.secrets:set_secret", "Set a secret; the value is prompted for or read from stdin."
            ),
            CommandRow("remove", "people.secrets:remove", "Remove a secret."),
            CommandRow("rotate", "people.secrets:rotate", "Re-encrypt every secret with a new key."),
        ),
    ),
    CommandRow(
        "notifications",
        "people.notifications:notifications",
        "List a project's webhooks; add, test, change or remove a webhook.",
        rows=(
            CommandRow("list", "people.notifications:notifications", "List a project's webhooks and their state."),
            CommandRow(
                "add",
                "people.notifications:add",
                "Add a webhook for job events; prints its signing secret once.",
            ),
            CommandRow("show", "people.notifications:show", "Show a webhook."),
            CommandRow("change", "people.notifications:change", "Change a webhook's URL or events."),
            CommandRow("test", "people.notifications:try_it", "Send a test message now and show the response."),
            CommandRow("enable", "people.notifications:enable", "Enable a webhook; retry now if it is waiting."),
            CommandRow("disable", "people.notifications:disable", "Disable a webhook."),
            CommandRow(
                "rotate",
                "people.notifications:rotate",
                "Create a new signing secret; the old one stays valid for a day.",
            ),
            CommandRow("deliveries", "people.notifications:deliveries", "List a webhook's recent deliveries."),
            CommandRow("remove", "people.notifications:remove", "Remove a webhook and its secret."),
        ),
    ),
    CommandRow("share", "people.tokens:share", "Create a link that shows one job to anyone who has it."),
    CommandRow("audit", "people.users:audit", "List the audit log."),
    CommandRow("login", "people.login:login", "Log in to a server, or create a login link for a browser."),
    CommandRow("logout", "people.login:logout", "Log out of a server."),
    CommandRow("whoami", "people.login:whoami", "Show the user you are logged in as."),
    CommandRow(
        "config",
        "server.config:config",
        "Show the settings in effect; set or unset your own.",
        rows=(
            CommandRow("show", "server.config:config", "Show the settings in effect."),
            CommandRow("set", "server.config:set_", "Set a setting in your config.toml."),
            CommandRow("unset", "server.config:unset", "Remove a setting from your config.toml."),
        ),
    ),
    CommandRow("init", "jobs.init:init", "Write an example job file."),
    CommandRow("completion", "server.config:completion", "Print the shell completion script."),
    CommandRow("up", "server.embedded:up", "Start the embedded server."),
    CommandRow("down", "server.embedded:down", "Stop the embedded server; running jobs continue."),
    CommandRow("doctor", "server.doctor:doctor", "Check the installation and suggest fixes."),
)


class Command(TyperCommand):
    """A command that also takes the shared options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(shared_options())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            if getattr(error, "ctx", None) is None:  # so that the fix names the help of this command, not of `crucible`
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_placeholder(param) for param in self.get_params(ctx) if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options by their placeholders, without the types typer would add."""
        params: list[Any] = list(self.get_params(ctx))
        arguments = [(_placeholder(param).strip("[]"), param.help or "") for param in params if _is_argument(param)]
        options = [param.get_help_record(ctx) for param in params if not _is_argument(param)]
        for name, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


class ProgramCommand(Command):
    """A command that passes the arguments after `--` to the user's program unread.

    Before them it passes further words that name existing files, as in `run train.py config/small.py`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        args, after = args[:at], args[at + 1 :]
        asked = list(args)
        ctx.allow_extra_args = any(param.name == "target" for param in self.params)
        left = super().parse_args(ctx, args)
        words, ctx.args = list(ctx.args), []
        if not all(map(os.path.lexists, words)):
            ctx.allow_extra_args = False
            return super().parse_args(ctx, asked)
        ctx.meta[ARGUMENTS] = (*words, *after)
        return left

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


class SettingsCommand(Command):
    """A command that takes the settings of a backend as options. It does not know them; each has a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set aside the unknown options. typer's own way would read `-oX` behind one as the flags -o and -X."""
        params: list[Any] = [param for param in self.get_params(ctx) if not _is_argument(param)]
        takes_value = {flag: not param.is_flag for param in params for flag in param.opts}
        rest: list[str] = []
        found: list[tuple[str, str]] = []
        words = iter(args)
        for word in words:
            name, equals, value = word.partition("=")
            if word == "--" or not word.startswith("--") or name in takes_value:
                rest.append(word)
                if not equals and takes_value.get(word) and (following := next(words, None)) is not None:
                    rest.append(following)
                continue
            given = value if equals else next(words, None)
            if given is None:
                raise typer.BadParameter(f"{name} needs a value", ctx)
            found.append((name.removeprefix("--"), given))
        ctx.meta[SETTING_OPTIONS] = tuple(found)
        return super().parse_args(ctx, rest)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[--SETTING VALUE]..."]


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _placeholder(param: Any) -> str:
    return str(param.metavar or param.name.upper())


class LazyGroup(TyperGroup):
    """Lists every command from the table; imports a command's module only when it runs."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rows = {row.name: row for row in COMMANDS}
        # typer compares a mistyped name with these keys
        self.commands = dict.fromkeys(self.rows)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = self.rows.get(cmd_name)
        return load_command(row) if row else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.help) for row in self.rows.values()])


class SubGroup(TyperGroup):
    """A command with subcommands. Without a subcommand it runs its own target."""

    def __init__(self, row: CommandRow) -> None:
        super().__init__(name=row.name, help=row.help, rich_markup_mode=None, no_args_is_help=not row.target)
        self.row = row
        self.rows = {item.name: item for item in row.rows}
        self.commands = dict.fromkeys(self.rows)  # type: ignore[assignment]
        self.params.extend(shared_options())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = self.rows.get(cmd_name)
        return load_command(row) if row else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Allow options before the subcommand, and default to the group's own target.

        Shell completion parses an unfinished line, where the subcommand may still follow: no default there.
        """
        at = _position_of_command(args, self._with_values())
        if at is not None:
            args = [args[at], *args[:at], *args[at + 1 :]]
        elif self.row.target and not ctx.resilient_parsing and not {"--help", "-h"} & set(args):
            args = [self._default_command, *args]
        return super().parse_args(ctx, args)

    def _with_values(self) -> frozenset[str]:
        """Return the options that take a value, so that the value is not mistaken for a subcommand."""
        params: Any = load_command(self.rows[self._default_command]).params if self.row.target else self.params
        return frozenset(flag for param in params if not getattr(param, "is_flag", True) for flag in param.opts)

    @property
    def _default_command(self) -> str:
        return next(name for name, row in self.rows.items() if row.target == self.row.target)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "[COMMAND]" if self.row.target else "COMMAND"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        command: Any = load_command(self.rows[self._default_command]) if self.row.target else self
        records = [param.get_help_record(ctx) for param in command.get_params(ctx) if not _is_argument(param)]
        with formatter.section("Options"):
            formatter.write_dl(records)
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.help) for row in self.rows.values()])


def _position_of_command(args: list[str], with_values: frozenset[str]) -> int | None:
    """Return the index of the first argument that is neither an option nor an option's value."""
    for at, word in enumerate(args):
        if not word.startswith("-") and (at == 0 or args[at - 1] not in with_values):
            return at
    return None


def load_command(row: CommandRow) -> Any:
    """Import and return the command of a row."""
    if row.rows:
        return SubGroup(row)
    module, _, function = row.target.partition(":")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    kind = ProgramCommand if row.arguments else SettingsCommand if row.setting_options else Command
    app.command(row.name, cls=kind)(getattr(importlib.import_module(f"crucible.cli.{module}"), function))
    return typer.main.get_command(app)


def remember_flag(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> None:
    """Store a shared option in the context if it was given."""
    if value not in (None, False):
        ctx.meta.setdefault(FLAGS, {})[param.name] = value


Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Server to use (default: the one logged in to, or the embedded server).",
        callback=remember_flag,
        expose_value=False,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON on standard output.", callback=remember_flag, expose_value=False),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print only ids and data.", callback=remember_flag, expose_value=False),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.", callback=remember_flag, expose_value=False)]


def _shared(server: Server = None, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Declare the options that are accepted before or after the command's name."""


def shared_options() -> Iterable[Any]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_shared)
    return [param for param in typer.main.get_command(app).params if param.name != "help"]
