"""`crucible backends connect`, `disconnect`, `show` and `check`: the connections of the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from crucible.cli.command_table import SETTING_OPTIONS
from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.cli.output.output import Output
from crucible.client.api import Api
from crucible.core.errors import BadInput, UnknownName
from crucible.core.views.backends import BackendCheckView, BackendSettingsView, CheckFindingView, SettingView
from crucible.core.views.compute import MachineView, OfferView

WAIT_SECONDS = 15.0
POLL_SECONDS = 0.5
MAX_SECRET = 64 * 1024
STDIN = "-"
"""Instead of a secret: read it from standard input."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Backend; `crucible backends` lists them.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Set a field; an empty value removes it. Repeatable."),
]
SettingValues = dict[str, object]


def show(ctx: typer.Context, name: Name) -> None:
    """Show a backend's settings: the option, value, source and meaning of each."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        view = api.compute.backend(name)
    if cli.out.as_json:
        cli.out.json(view.as_json())
        return
    for line in _format_state(view):
        cli.out.data(line)
    rows = [(f"--{each.option}", _value(each), each.origin, each.description) for each in view.settings]
    cli.out.table(("OPTION", "VALUE", "FROM", "MEANING"), rows)
    for each in view.settings:
        cli.out.say(f"{each.name}: set by --{each.option}, {' or '.join(each.variables)}")
    for machine in view.machines:
        cli.out.data(f"machine {_format_machine(machine)}")


def check(ctx: typer.Context, name: Name, values: Set = None) -> int:
    """Check a backend; with options, as it would be with these settings, e.g. --host user@box. Changes nothing."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        view = api.compute.backend(name)
        checked = api.compute.check_backend(name, read_settings(view, _pairs(ctx, values)))
    if cli.out.as_json:
        cli.out.json(checked.as_json())
    _print_check(cli.out, checked)
    return 0 if checked.ok else 1


def connect(ctx: typer.Context, name: Name, values: Set = None, yes: Yes = False) -> int:
    """Connect the server to a backend, or change its settings, e.g. `connect ssh --host user@box`.

    Its settings are options; `crucible backends show NAME` lists them. The command asks for required ones, checks the
    backend, shows the results and prices, and asks for confirmation unless --yes.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        view = api.compute.backend(name)
        given = read_settings(view, _pairs(ctx, values))
        if sys.stdin.isatty():
            missing = (each for each in view.settings if each.is_missing and not given.get(each.name))
            given |= {each.name: _prompt(cli.out, each) for each in missing}
        if not yes:
            checked = api.compute.check_backend(name, given)
            _print_check(cli.out, checked)
            if not checked.ok:
                if cli.out.as_json:
                    cli.out.json(checked.as_json())
                cli.out.warn(f"{name} was not connected, because a check failed. Nothing was stored.")
                return 1
            question = f"Change the settings of {name}?" if view.state == "connected" else f"Connect {name}?"
            if not cli.confirm(question, yes=False):
                return 1
        checked = api.compute.connect_backend(name, given)
    if yes:
        _print_check(cli.out, checked)
    if cli.out.as_json:
        cli.out.json(checked.as_json())
    cli.out.say(f"{name} is connected. Try it: crucible plan TARGET --backend {name}")
    return 0


def disconnect(ctx: typer.Context, name: Name, yes: Yes = False) -> int:
    """Stop placing jobs on a backend, and disconnect it once its machines are gone. Asks unless --yes."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        view = api.compute.backend(name)
        left = "\n".join(
            f"{name} has the machine {_format_machine(each)}. Its jobs continue." for each in view.machines
        )
        if not cli.confirm(f"Disconnect {name}?", yes=yes, why=left):
            return 1
        done = api.compute.disconnect_backend(name)
        state = _await_end(api, name) if done.state == "disconnecting" else done.state
    if cli.out.as_json:
        cli.out.json({**done.as_json(), "state": state})
    for finding in done.findings:
        cli.out.say(_format_finding(finding))
    if state != "disconnecting":
        cli.out.say(f"{name} is disconnected.")
        return 0
    for machine in done.machines:
        cli.out.say(f"still there: {_format_machine(machine)}")
    cli.out.say(
        f"{name} is being disconnected: it gets no new jobs, and ends once its machines are gone and their final bills "
        f"were read. `crucible backends show {name}` shows them, `crucible machines terminate ID` ends one now."
    )
    return 0


def read_settings(view: BackendSettingsView, pairs: Iterable[tuple[str, str]]) -> SettingValues:
    """Return the values of settings, by field. Raises UnknownName, and BadInput for a secret on the command line."""
    fields = {name: each for each in view.settings for name in (each.option, each.name, each.name.replace("_", "-"))}
    given: SettingValues = {}
    for name, value in pairs:
        declared = fields.get(name)
        if declared is None:
            fix = f"`crucible backends show {view.name}` describes them."
            raise UnknownName(f"setting of {view.name}", name, fields, fix=fix)
        if declared.many and value:
            known = given.get(declared.name)
            given[declared.name] = [*(known if isinstance(known, list) else ()), value]
        else:
            given[declared.name] = _secret(declared, value) if declared.secret and value else value or None
    return given


def _pairs(ctx: typer.Context, values: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield name and value of the options that are settings, and those of --set."""
    yield from ctx.meta.get(SETTING_OPTIONS, ())
    for value in values or ():
        name, equals, text = value.partition("=")
        if not equals:
            raise BadInput(f"--set {name[:80]} has no value.", fix="Write --set FIELD=VALUE.")
        yield name, text


def _secret(declared: SettingView, value: str) -> str:
    if value != STDIN:
        raise BadInput(
            f"{declared.name} is a secret, which other users of this computer could read in the list of processes.",
            fix=f"Leave it out to be asked for it, or pass it on standard input: --{declared.option} -",
        )
    text = sys.stdin.buffer.read(MAX_SECRET).decode(errors="replace").removesuffix("\n").removesuffix("\r")
    if not text:
        raise BadInput("Standard input is empty.", fix=f"Redirect a file with the {declared.name}: < FILE")
    return text


def _prompt(out: Output, setting: SettingView) -> str:
    out.instruct(f"{setting.name}: {setting.description}")
    question = f"{setting.name}{' (separated by commas)' if setting.many else ''}"
    return str(typer.prompt(question, hide_input=setting.secret, err=True))


def _print_check(out: Output, checked: BackendCheckView) -> None:
    for finding in checked.findings:
        out.say(_format_finding(finding))
    for change in checked.changes:
        out.say(f"{change.name}: {change.before or 'not set'} → {change.after or 'not set'}")
    for offer in checked.offers:
        out.say(f"offers {_format_offer(offer)}")
    if checked.ok:
        out.say(f"jobs there: {_format_access(checked)}")


def _format_access(checked: BackendCheckView) -> str:
    if checked.projects:
        return f"of the projects {', '.join(checked.projects)}, and of users who operate this server"
    if checked.operators_only:
        return "only of users who operate this server (--project NAME allows a project)"
    return "of all projects (--project NAME allows only that project)"


def _format_finding(finding: CheckFindingView) -> str:
    if finding.ok and not finding.warning:
        return f"✓ {finding.what}"
    mark = "!" if finding.ok else "✗"
    return "\n  ".join(part for part in (f"{mark} {finding.what}", finding.why, finding.fix) if part)


def _format_offer(offer: OfferView) -> str:
    price = f"${offer.rate_micros_per_hour / 1e6:g}/h" if offer.rate_micros_per_hour else "at no cost"
    market = "" if offer.market.value == "on_demand" else f" {offer.market.value}"
    why = "" if offer.runnable else f" (not now: {offer.why})"
    return f"{offer.instance_type} in {offer.region}{market}: {price}{why}"


def _format_state(view: BackendSettingsView) -> Iterator[str]:
    by = f" by {view.connected_by}" if view.connected_by else ""
    when = f", last changed by {view.updated_by} at {view.updated_at}" if view.updated_at else ""
    yield f"{view.name} is {view.state}{by}{when}"
    if view.problem is not None:
        yield " ".join(part for part in (view.problem.what, view.problem.why, view.problem.fix) if part)


def _value(setting: SettingView) -> str:
    return setting.value or ("missing" if setting.is_missing else "")


def _format_machine(machine: MachineView) -> str:
    return f"{machine.display_name} ({machine.state}, {machine.instance_type or 'unknown type'})"


def _await_end(api: Api, name: str) -> str:
    """Return the state of a backend once its machines are gone, or after a while."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (state := api.compute.backend(name).state) == "disconnecting" and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return state
