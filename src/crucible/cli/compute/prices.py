"""`crucible catalog audit` and `refresh`: whether prices can be right, and what they are today."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.output.format import price_words
from crucible.cli.output.output import tell_error
from crucible.cli.session import Session
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
"""Those with a price interface."""


def audit(
    ctx: typer.Context,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Compare with another table of prices (CSV).")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Whose prices FILE has; told by its types.")
    ] = None,
    over: Annotated[
        float, typer.Option("--over", metavar="PERCENT", min=0, help="List what differs by more than this.")
    ] = 10.0,
) -> int:
    """Say what is wrong with the prices in use; with --against, how far another table agrees. 1: some are refused."""
    session = Session.of(ctx)
    with session.api() as api:
        if against is not None:
            _tell_comparison(session, api.catalog.compare(_table(against), provider=provider, over=over))
            return 0
        found = api.catalog.audit()
    if session.out.as_json:
        session.out.json(found.as_json())
    else:
        _tell_audit(session, found)
    return 1 if found.refused else 0


def refresh(
    ctx: typer.Context,
    provider: Annotated[
        str | None, typer.Argument(metavar="[PROVIDER]", help="One of them; all that can be asked unless given.")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Only there. Repeatable.")
    ] = None,
) -> int:
    """Ask providers for their prices of today. What cannot be right is refused, and the old price stays.

    Of all of them, those that are not set up to be asked are told and do not count as failed.
    """
    session = Session.of(ctx)
    with session.api() as api:
        if provider is not None:
            _tell_refresh(session, api.catalog.refresh(provider, region or ()))
            return 0
        codes = [_refreshed(session, api, name, region or ()) for name in REFRESHED]
    failed = [code for code in codes if code not in (0, BadInput.exit_code)]
    return failed[0] if failed else min(codes)


def _refreshed(session: Session, api: Api, provider: str, regions: Sequence[str]) -> int:
    """One of several: what is wrong with it is told and stops none of the others."""
    try:
        _tell_refresh(session, api.catalog.refresh(provider, regions))
    except CrucibleError as error:
        tell_error(error, as_json=session.out.as_json)
        return error.exit_code
    return 0


def _tell_refresh(session: Session, found: RefreshView) -> None:
    out = session.out
    if out.as_json:
        out.json(found.as_json())
        return
    out.data(f"{found.provider}: {found.prices} prices of {len(found.regions)} regions, {found.changed} changed")
    for note in found.notes:
        out.say(f"Note: {note}")
    if found.refused:
        out.say(f"{found.refused} prices of the answer are refused, the old ones stay; the first:")
        out.explain("\n".join(f"{item.row}: {item.what}" for item in found.items[:5]))


def _table(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read.", why=f"{error.strerror}.", fix="Name a CSV file.") from error


def _tell_audit(session: Session, found: PriceAuditView) -> None:
    refused = [item for item in found.items if item.refused]
    told = [*refused, *(item for item in found.items if not item.refused)]
    if told and not session.out.quiet:
        session.out.table(("RULE", "ROW", "WHAT", "FIX"), map(_finding, told[:MOST_FINDINGS]))
    if len(told) > MOST_FINDINGS:
        session.out.say(f"{len(told) - MOST_FINDINGS} more; --json has all of them.")
    session.out.say(
        f"{found.offers} prices of {found.rows} rows are offered; {len(refused)} are refused, "
        f"{found.warnings} warnings. As of {found.day}."
    )


def _finding(item: PriceFindingView) -> tuple[str, ...]:
    return f"{item.rule}{'' if item.refused else ' (warning)'}", item.row, item.what, item.fix


def _tell_comparison(session: Session, found: PriceComparisonView) -> None:
    out = session.out
    if out.as_json:
        out.json(found.as_json())
        return
    agree = ", ".join(f"{count} within {close}" for close, count in found.within.items())
    spot = ", ".join(f"{count} within {close}" for close, count in found.spot_within.items())
    out.fields(
        (
            ("Provider", found.provider),
            ("Ours", f"{found.ours} on-demand prices"),
            ("Theirs", f"{found.theirs}"),
            ("In both", f"{found.matched} ({found.matched_share:.0%} of ours): {agree}"),
            ("Spot", f"{found.spot_matched} in both: {spot}" if found.spot_matched else None),
            ("Not here", f"{found.missing_here_count} places of types that we have; {found.unknown_types} other types"),
            ("Not there", f"{found.missing_there_count}"),
            ("Unreadable", f"{found.unreadable} lines" if found.unreadable else None),
        )
    )
    if found.differences:
        out.table(("ROW", "MARKET", "OURS", "THEIRS", "BY"), map(_difference, found.differences))
    out.say(f"{found.differences_count} differ by more than {found.over_percent:g}%.")


def _difference(one: DifferenceView) -> tuple[str, ...]:
    prices = price_words(one.ours_micros), price_words(one.theirs_micros)
    return one.row, one.market.replace("_", "-"), *prices, f"{one.percent:+.1f}%"
