"""Refresh the catalog's prices from the price interfaces of the providers."""

from __future__ import annotations

from crucible.catalog.refresh.fetcher import BadAnswer
from crucible.catalog.refresh.quotes import RefreshResult
from crucible.catalog.refresh.refresh import refresh

__all__ = ["BadAnswer", "RefreshResult", "refresh"]
