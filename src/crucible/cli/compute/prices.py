"""`crucible catalog audit` and `refresh`: check prices and fetch current ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.output.format import format_price
from crucible.cli.output.output import print_error
from crucible.client.api import Api
from crucible.core.errors import BadInput, CrucibleError
from crucible.core.views.catalog import (
    DifferenceView,
    PriceAuditView,
    PriceComparisonView,
    PriceFindingView,
    RefreshView,
)

MOST_FINDINGS = 20
REFRESHED = ("aws", "azure", "gcp", "lambda")
"""Providers with a price API."""


def audit(
    ctx: typer.Context,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Compare with another price table (CSV).")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider", metavar="NAME", help="Provider of FILE's prices (default: recognized by its instance types)."
        ),
    ] = None,
    over: Annotated[
        float,
        typer.Option("--over", metavar="PERCENT", min=0, help="List differences above this percentage (default: 10)."),
    ] = 10.0,
) -> int:
    """Check the prices in use, or compare them with --against. Exit code 1 if prices are rejected."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        if against is not None:
            _print_comparison(cli, api.catalog.compare(_read_table(against), provider=provider, over=over))
            return 0
        audit_view = api.catalog.audit()
    if cli.out.as_json:
        cli.out.json(audit_view.as_json())
    else:
        _print_audit(cli, audit_view)
    return 1 if audit_view.refused else 0


def refresh(
    ctx: typer.Context,
    provider: Annotated[
        str | None, typer.Argument(metavar="[PROVIDER]", help="Provider (default: all with a price API).")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Only this region. Repeatable.")
    ] = None,
) -> int:
    """Fetch current prices from providers. Implausible prices are rejected, and the old ones stay.

    Without a provider, those without credentials are reported but do not count as failures.
    """
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        if provider is not None:
            _print_refresh(cli, api.catalog.refresh(provider, region or ()))
            return 0
        codes = [_refresh_one(cli, api, name, region or ()) for name in REFRESHED]
    failed = [code for code in codes if code not in (0, BadInput.exit_code)]
    return failed[0] if failed else min(codes)


def _refresh_one(cli: CommandContext, api: Api, provider: str, regions: Sequence[str]) -> int:
    """Refresh one of several providers; print its error, so that the others go ahead, and return its exit code."""
    try:
        _print_refresh(cli, api.catalog.refresh(provider, regions))
    except CrucibleError as error:
        print_error(error, as_json=cli.out.as_json)
        return error.exit_code
    return 0


def _print_refresh(cli: CommandContext, result: RefreshView) -> None:
    out = cli.out
    if out.as_json:
        out.json(result.as_json())
        return
    out.data(f"{result.provider}: {result.prices} prices of {len(result.regions)} regions, {result.changed} changed")
    for note in result.notes:
        out.say(f"Note: {note}")
    if result.refused:
        out.say(f"{result.refused} prices in the response are rejected, the old ones stay; the first:")
        out.say_indented("\n".join(f"{item.row}: {item.what}" for item in result.items[:5]))


def _read_table(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read.", why=f"{error.strerror}.", fix="Name a CSV file.") from error


def _print_audit(cli: CommandContext, audit: PriceAuditView) -> None:
    refused = [item for item in audit.items if item.refused]
    findings = [*refused, *(item for item in audit.items if not item.refused)]
    if findings and not cli.out.quiet:
        cli.out.table(("RULE", "ROW", "WHAT", "FIX"), map(_finding_row, findings[:MOST_FINDINGS]))
    if len(findings) > MOST_FINDINGS:
        cli.out.say(f"{len(findings) - MOST_FINDINGS} more; --json lists all.")
    cli.out.say(
        f"{audit.offers} prices from {audit.rows} rows are offered; {len(refused)} are rejected, "
        f"{audit.warnings} warnings. As of {audit.day}."
    )


def _finding_row(item: PriceFindingView) -> tuple[str, ...]:
    return f"{item.rule}{'' if item.refused else ' (warning)'}", item.row, item.what, item.fix


def _print_comparison(cli: CommandContext, comparison: PriceComparisonView) -> None:
    out = cli.out
    if out.as_json:
        out.json(comparison.as_json())
        return
    agree = ", ".join(f"{count} within {close}" for close, count in comparison.within.items())
    spot = ", ".join(f"{count} within {close}" for close, count in comparison.spot_within.items())
    out.fields(
        (
            ("Provider", comparison.provider),
            ("Ours", f"{comparison.ours} on-demand prices"),
            ("Theirs", f"{comparison.theirs}"),
            ("In both", f"{comparison.matched} ({comparison.matched_share:.0%} of ours): {agree}"),
            ("Spot", f"{comparison.spot_matched} in both: {spot}" if comparison.spot_matched else None),
            (
                "Not here",
                f"{comparison.missing_here_count} regions of our types; {comparison.unknown_types} other types",
            ),
            ("Not there", f"{comparison.missing_there_count}"),
            ("Unreadable", f"{comparison.unreadable} lines" if comparison.unreadable else None),
        )
    )
    if comparison.differences:
        out.table(("ROW", "MARKET", "OURS", "THEIRS", "BY"), map(_difference_row, comparison.differences))
    out.say(f"{comparison.differences_count} differ by more than {comparison.over_percent:g}%.")


def _difference_row(one: DifferenceView) -> tuple[str, ...]:
    prices = format_price(one.ours_micros), format_price(one.theirs_micros)
    return one.row, one.market.replace("_", "-"), *prices, f"{one.percent:+.1f}%"
