"""Whether an offer's region is one that was asked for."""

from __future__ import annotations

from collections.abc import Iterable


def in_regions(region: str, wanted: Iterable[str]) -> bool:
    """Return whether an offer's region or zone is one of the wanted ones, or lies in one of them.

    `us-east-1` has the zones `us-east-1a` and `us-east-1-bos-1a`; `us-central1` has `us-central1-a`; `us` and
    `us-` have every region and zone that begins with `us-`. `us-east-10` is not in `us-east-1`, and `eastus2` not in
    `eastus`.
    """
    return any(_is_in(region, name) for name in wanted)


def _is_in(region: str, name: str) -> bool:
    if not region.startswith(name):
        return False
    rest = region[len(name) :]
    letter_of_zone = name[-1:].isdigit() and len(rest) == 1 and rest.isalpha()
    return not rest or rest.startswith("-") or name.endswith("-") or letter_of_zone
