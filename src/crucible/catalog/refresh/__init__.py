"""Refreshing: providers' price interfaces, asked for what the catalog knows."""

from __future__ import annotations

from crucible.catalog.refresh.fetcher import BadAnswer
from crucible.catalog.refresh.quotes import Refreshed
from crucible.catalog.refresh.refresh import refresh

__all__ = ["BadAnswer", "Refreshed", "refresh"]
