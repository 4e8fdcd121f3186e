"""Refresh the prices of a provider: fetch them, audit them, and store those that pass."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from crucible.catalog.lists import PROVIDERS, WITHOUT_INTERFACE, price_lists
from crucible.catalog.refresh import aws, azure, gcp, lambdacloud
from crucible.catalog.refresh.fetcher import Fetcher, bad_answer
from crucible.catalog.refresh.quotes import Quotes, RefreshResult
from crucible.catalog.rows import Row
from crucible.catalog.sources import KEYS, Sources
from crucible.catalog.store import Library, shipped
from crucible.core.errors import BadInput, UnknownName
from crucible.core.secret import Secret

AWS_REGIONS = ("us-east-1",)
"""The default regions. The lists are large, so those of other regions are fetched on request only."""


def refresh(library: Library, provider: str, regions: Sequence[str], day: date, sources: Sources) -> RefreshResult:
    """Fetch the prices of a provider, and store those that pass the audit, dated `day`.

    `regions` (default: the known ones; of AWS, AWS_REGIONS). Raises BadInput for a provider without a price interface
    or without a key; BadAnswer, TimedOut or Unreachable leave the old prices in use.
    """
    known = _known(library, provider)
    chosen = _regions(provider, known, regions)
    quotes = Quotes(provider, {row.instance_type: row for row in known}, day)
    with Fetcher(provider, sources.transport) as fetcher:
        notes = _fetch(fetcher, quotes, known, chosen, sources)
    quotes.check_whole(known, chosen)
    refused = library.renew(provider, list(quotes.rows()), day)
    kept = tuple(row for row in library.refreshed(provider) if row.dated == day.isoformat())
    if not kept:
        raise bad_answer(provider, f"The audit refused every price, such as {refused[0].row}: {refused[0].what}")
    return RefreshResult(kept, (*quotes.problems, *refused), tuple(notes))


def _fetch(
    fetcher: Fetcher, quotes: Quotes, known: Sequence[Row], regions: Sequence[str], sources: Sources
) -> Sequence[str]:
    if quotes.provider == "aws":
        return aws.fetch(fetcher, quotes, regions, sources.aws_clients())
    if quotes.provider == "azure":
        azure.fetch(fetcher, quotes, regions)
    elif quotes.provider == "gcp":
        gcp.fetch(fetcher, quotes, regions, _key("gcp", sources))
    elif quotes.provider == "lambda":
        return lambdacloud.fetch(fetcher, quotes, known, _key("lambda", sources))
    return ()


def _known(library: Library, provider: str) -> list[Row]:
    """Return the rows of this provider that can be refreshed. Raises BadInput if it has no price interface."""
    if provider not in PROVIDERS:
        raise UnknownName("provider", provider, PROVIDERS)
    if provider in WITHOUT_INTERFACE:
        pages = ", ".join(page.source for page in price_lists().values() if page.provider == provider)
        raise BadInput(
            f"The prices of {provider} cannot be refreshed.",
            why=f"It has no price interface, only web pages: {pages}.",
            fix="Compare by hand with `crucible catalog list`, which shows the date of each price.",
            provider=provider,
        )
    rows = [*shipped().rows, *library.refreshed(provider)]
    return [row for row in rows if row.provider == provider and row.price_list != "gcp-run"]


def _regions(provider: str, known: Sequence[Row], requested: Sequence[str]) -> tuple[str, ...]:
    names = {row.region for row in known}
    for name in requested:
        if name not in names:
            raise UnknownName("region", name, names, fix=f"`crucible catalog list --provider {provider}` shows them.")
    if requested:
        return tuple(dict.fromkeys(requested))
    return AWS_REGIONS if provider == "aws" else tuple(sorted(names))


def _key(provider: str, sources: Sources) -> Secret:
    key = sources.keys.get(provider)
    if key is None:
        raise BadInput(
            f"The prices of {provider} cannot be refreshed without a key.",
            why="Its price interface requires one.",
            fix=f"Start the server with {KEYS[provider]} in its environment: crucible down, then crucible up.",
            provider=provider,
        )
    return key
