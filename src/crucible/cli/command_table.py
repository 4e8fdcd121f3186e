"""The table of commands, and the group that loads a command's module only when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

FLAGS = "crucible.flags"
"""Where the context keeps the shared options, wherever on the line they stood."""

ARGUMENTS = "crucible.arguments"
"""Where the context keeps what stood after `--`."""


@dataclass(frozen=True)
class Row:
    """A command: its name, `module:function` below crucible.cli, and one line of help."""

    name: str
    target: str
    help: str
    arguments: bool = False
    """Whether what stands after `--` belongs to the user's program."""

    rows: tuple[Row, ...] = ()
    """Commands below this one. What it does without one of them is its target; none: it shows its help."""


COMMANDS = (
    Row("run", "jobs.run:run", "Run a script, directory, notebook, git address, code or job file.", arguments=True),
    Row("train", "jobs.train:train", "Train a model by its name, or by a script.", arguments=True),
    Row("infer", "jobs.train:infer", "Ask a model, or a script, for a prediction.", arguments=True),
    Row("benchmark", "jobs.train:benchmark", "Measure a model, or run a script that measures.", arguments=True),
    Row("plan", "jobs.train:plan", "Show where a job would run, and for how much.", arguments=True),
    Row(
        "predictions",
        "compute.predictions:predictions",
        "Show how long jobs were said to take, and how long they took.",
    ),
    Row("status", "jobs.jobs:status", "Show all active jobs, or one job."),
    Row("jobs", "jobs.jobs:jobs", "List jobs, newest first."),
    Row("logs", "jobs.logs:logs", "Print a job's output; -f follows it."),
    Row("attach", "jobs.attach:attach", "Show a running job's output from now on, to its end."),
    Row("exec", "jobs.exec:exec_", "Run a command, or a shell, where a job runs.", arguments=True),
    Row("ports", "jobs.ports:ports", "Reach a running job's own ports from here, or list them."),
    Row("metrics", "jobs.metrics:metrics", "Show a job's metrics as sparklines."),
    Row("health", "jobs.health:health", "Say how a job does, why, and what to do."),
    Row("check", "jobs.health:health", "The same as health."),
    Row("compare", "jobs.compare:compare", "Show jobs side by side: settings, metrics, duration, cost."),
    Row("events", "jobs.jobs:events", "List what happened to a job."),
    Row("cancel", "jobs.cancel:cancel", "End jobs."),
    Row("tag", "jobs.labels:tag", "Add tags to a job, take some away, or list them."),
    Row("note", "jobs.labels:note", "Leave a note on a job, delete one, or list them."),
    Row("rename", "jobs.labels:rename", "Give a job another name."),
    Row("resume", "jobs.resume:resume", "Go on with a job that has ended, from a checkpoint."),
    Row("rerun", "jobs.resume:rerun", "Run a job once more as it was: same code, arguments and seed."),
    Row("checkpoints", "jobs.checkpoints:checkpoints", "List a job's checkpoints, ask for one, or fetch one."),
    Row("download", "jobs.download:download", "Fetch a job's artifacts."),
    Row(
        "templates",
        "jobs.templates:templates",
        "List ready workloads.",
        rows=(
            Row("list", "jobs.templates:templates", "List ready workloads."),
            Row("show", "jobs.templates:show", "Show one: its sizes, files and requirements."),
            Row("copy", "jobs.templates:copy", "Copy one into a folder, to own and change."),
        ),
    ),
    Row(
        "models",
        "jobs.models:models",
        "List the model plugins of a Python.",
        rows=(
            Row("list", "jobs.models:models", "List the model plugins of a Python."),
            Row("show", "jobs.models:show", "Show one: what it is, what it can do, and its options."),
        ),
    ),
    Row("client", "jobs.client:client", "Submit and watch training tasks of tenants."),
    Row("backends", "compute.backends:backends", "List the places that can run jobs."),
    Row("tiers", "compute.backends:tiers", "List the named sizes."),
    Row(
        "catalog",
        "compute.catalog:catalog",
        "List what can be rented, for how much; check those prices.",
        rows=(
            Row("list", "compute.catalog:catalog", "List what can be rented, cheapest first."),
            Row("show", "compute.catalog:show", "Show one instance type: its size, and its prices everywhere."),
            Row("gpus", "compute.catalog:gpus", "List GPU types: memory, bandwidth, peak rates."),
            Row("refresh", "compute.prices:refresh", "Ask providers for their prices of today."),
            Row("audit", "compute.prices:audit", "Say what is wrong with prices; compare them with another table."),
        ),
    ),
    Row(
        "machines",
        "compute.machines:machines",
        "List machines in use; end one; look for lost ones.",
        rows=(
            Row("list", "compute.machines:machines", "List machines in use."),
            Row("terminate", "compute.machines:terminate", "End machines, whatever runs there."),
            Row("orphans", "compute.machines:orphans", "List machines at our places that should not be there."),
        ),
    ),
    Row("prune", "server.prune:prune", "Remove what is older than it needs to be kept."),
    Row(
        "db",
        "",
        "Copy the database, or put a copy in its place.",
        rows=(
            Row("backup", "server.database:backup", "Copy the database to a file, while it is in use."),
            Row("restore", "server.database:restore", "Put a copy in the place of the embedded server's database."),
            Row("confirm", "server.database:confirm", "After a restore: let machines be launched and ended again."),
        ),
    ),
    Row(
        "users",
        "people.users:users",
        "List users; add, disable, enable one.",
        rows=(
            Row("list", "people.users:users", "List users."),
            Row("add", "people.users:add", "Add a user."),
            Row("password", "people.users:password", "Set a user's password; ends what he has open."),
            Row("email", "people.users:email", "Set the address by which a user signs in with the provider."),
            Row("tie", "people.users:tie", "Tie a user to a person of the provider."),
            Row("disable", "people.users:disable", "Keep a user out, and end all his tokens."),
            Row("enable", "people.users:enable", "Let a user in again."),
        ),
    ),
    Row(
        "projects",
        "people.projects:projects",
        "List your projects; add one; say who belongs to it.",
        rows=(
            Row("list", "people.projects:projects", "List the projects that you may see."),
            Row("add", "people.projects:add", "Add a project."),
            Row("members", "people.projects:members", "List who belongs to a project."),
            Row("grant", "people.projects:grant", "Give a user a role in a project."),
            Row("remove", "people.projects:remove", "End a user's membership."),
        ),
    ),
    Row(
        "tokens",
        "people.tokens:tokens",
        "List your tokens; make or revoke one.",
        rows=(
            Row("list", "people.tokens:tokens", "List your tokens, sessions and share links."),
            Row("create", "people.tokens:create", "Make a token for a program."),
            Row("revoke", "people.tokens:revoke", "End tokens at once."),
        ),
    ),
    Row(
        "secrets",
        "people.secrets:secrets",
        "List a project's secrets; set or remove one; rotate their keys.",
        rows=(
            Row("list", "people.secrets:secrets", "List a project's secrets, by name."),
            Row("set", "people.secrets:set_secret", "Set a secret; its value comes from standard input or a prompt."),
            Row("remove", "people.secrets:remove", "Remove a secret."),
            Row("rotate", "people.secrets:rotate", "Encrypt every secret anew with a new key."),
        ),
    ),
    Row(
        "notifications",
        "people.notifications:notifications",
        "List the addresses that a project tells of its jobs; add, try or remove one.",
        rows=(
            Row("list", "people.notifications:notifications", "List a project's hooks, and how they do."),
            Row(
                "add",
                "people.notifications:add",
                "Tell an address what becomes of jobs; prints the signing secret once.",
            ),
            Row("show", "people.notifications:show", "Show one hook."),
            Row("change", "people.notifications:change", "Change a hook's address, or what it is told of."),
            Row("test", "people.notifications:try_it", "Send a ping now, and say what the receiver answered."),
            Row("enable", "people.notifications:enable", "Tell it again, from now on; try it now if it waits."),
            Row("disable", "people.notifications:disable", "Tell it nothing more."),
            Row(
                "rotate",
                "people.notifications:rotate",
                "Give it a new signing secret; the old one is good for a day more.",
            ),
            Row("deliveries", "people.notifications:deliveries", "List the last tries to tell it something."),
            Row("remove", "people.notifications:remove", "Remove a hook and its secret."),
        ),
    ),
    Row("share", "people.tokens:share", "Make a token that shows one job to whoever has it."),
    Row("audit", "people.users:audit", "List what was done, and by whom."),
    Row("login", "people.login:login", "Log in to a server, or make a login link for a browser."),
    Row("logout", "people.login:logout", "Forget a server, and end the session there."),
    Row("whoami", "people.login:whoami", "Show who you are to the server."),
    Row(
        "config",
        "server.config:config",
        "Show the settings in force; set your own.",
        rows=(
            Row("show", "server.config:config", "Show the settings in force here."),
            Row("set", "server.config:set_", "Set one in your own config.toml."),
            Row("unset", "server.config:unset", "Take one out of your own config.toml."),
        ),
    ),
    Row("init", "jobs.init:init", "Write an example job file."),
    Row("completion", "server.completion:completion", "Print what lets your shell complete commands and options."),
    Row("up", "server.embedded:up", "Start the embedded server."),
    Row("down", "server.embedded:down", "Stop the embedded server; jobs go on."),
    Row("doctor", "server.doctor:doctor", "Check this installation and say what to mend."),
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
            if getattr(error, "ctx", None) is None:  # so that the help that is named is this command's
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_stands_for(param) for param in self.get_params(ctx) if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options by what stands for them, without the types that the library would add."""
        params: list[Any] = list(self.get_params(ctx))
        arguments = [(_stands_for(param).strip("[]"), param.help or "") for param in params if _is_argument(param)]
        options = [param.get_help_record(ctx) for param in params if not _is_argument(param)]
        for name, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


class ProgramCommand(Command):
    """A command whose arguments after `--` are the user's program's, and not ours to read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[ARGUMENTS] = args[:at], tuple(args[at + 1 :])
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _stands_for(param: Any) -> str:
    return str(param.metavar or param.name.upper())


class LazyGroup(TyperGroup):
    """Knows every command's name and help; imports a command when it is asked for."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rows = {row.name: row for row in COMMANDS}
        # Names that were mistyped are compared with these.
        self.commands = dict.fromkeys(self.rows)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = self.rows.get(cmd_name)
        return load(row) if row else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.help) for row in self.rows.values()])


class SubGroup(TyperGroup):
    """Commands below a command. Its own target is what it does when none of them is named."""

    def __init__(self, row: Row) -> None:
        super().__init__(name=row.name, help=row.help, rich_markup_mode=None, no_args_is_help=not row.target)
        self.row = row
        self.rows = {item.name: item for item in row.rows}
        self.commands = dict.fromkeys(self.rows)  # type: ignore[assignment]
        self.params.extend(shared_options())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = self.rows.get(cmd_name)
        return load(row) if row else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options may stand before the name of a command below; without a name the group's own target is meant,
        unless the line is read to complete it: then the name may still follow."""
        at = _first_word(args, self._with_values())
        if at is not None:
            args = [args[at], *args[:at], *args[at + 1 :]]
        elif self.row.target and not ctx.resilient_parsing and not {"--help", "-h"} & set(args):
            args = [self._own, *args]
        return super().parse_args(ctx, args)

    def _with_values(self) -> frozenset[str]:
        """The options, its own target's too, after which a value stands and not a command's name."""
        params: Any = load(self.rows[self._own]).params if self.row.target else self.params
        return frozenset(flag for param in params if not getattr(param, "is_flag", True) for flag in param.opts)

    @property
    def _own(self) -> str:
        return next(name for name, row in self.rows.items() if row.target == self.row.target)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "[COMMAND]" if self.row.target else "COMMAND"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown: Any = load(self.rows[self._own]) if self.row.target else self
        records = [param.get_help_record(ctx) for param in shown.get_params(ctx) if not _is_argument(param)]
        with formatter.section("Options"):
            formatter.write_dl(records)
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.help) for row in self.rows.values()])


def _first_word(args: list[str], with_values: frozenset[str]) -> int | None:
    """Where the first word stands that is neither an option nor the value of one."""
    for at, word in enumerate(args):
        if not word.startswith("-") and (at == 0 or args[at - 1] not in with_values):
            return at
    return None


def load(row: Row) -> Any:
    """The command behind a row."""
    if row.rows:
        return SubGroup(row)
    module, _, function = row.target.partition(":")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    kind = ProgramCommand if row.arguments else Command
    app.command(row.name, cls=kind)(getattr(importlib.import_module(f"crucible.cli.{module}"), function))
    return typer.main.get_command(app)


def note_flag(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> None:
    """Remember a shared option that was given; what was not given is not remembered."""
    if value not in (None, False):
        ctx.meta.setdefault(FLAGS, {})[param.name] = value


Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Server to talk to.", callback=note_flag, expose_value=False),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON on standard output.", callback=note_flag, expose_value=False),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print ids and data only.", callback=note_flag, expose_value=False),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks of errors.", callback=note_flag, expose_value=False)
]


def _shared(server: Server = None, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """The options that stand before or after the command's name."""


def shared_options() -> Iterable[Any]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_shared)
    return [param for param in typer.main.get_command(app).params if param.name != "help"]
