"""Candidates: the ways in which a job may run, each a backend and a market, in the order of preference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crucible.core.compute.offers import Market
from crucible.core.job.spec import JobSpec


@dataclass(frozen=True)
class Candidate:
    """A backend on which the job may run. `market`: of its machines, where they are billed."""

    backend: str
    market: Market = Market.ON_DEMAND


def list_candidates(spec: JobSpec, backend: str | None = None) -> tuple[Candidate, ...]:
    """Return the candidates of a job, in the user's order. `backend`: the only one, if the user has named it since.

    A job that asks for spot and allows on-demand has the on-demand candidates after all the spot ones.
    """
    backends = spec.backends if backend is None else (backend,)
    markets = [spec.market or Market.ON_DEMAND]
    if markets == [Market.SPOT] and spec.spot_fallback:
        markets.append(Market.ON_DEMAND)
    return tuple(Candidate(name, market) for market in markets for name in backends)


def backends_of(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Return the candidates' backends, each once, in their order."""
    return tuple(dict.fromkeys(candidate.backend for candidate in candidates))
