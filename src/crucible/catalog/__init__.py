"""What can be rented and for how much: the shipped prices, their index, the audit, and the refresh from providers."""

from __future__ import annotations

from crucible.catalog.findings import Finding, Rule
from crucible.catalog.index import Catalog, Need
from crucible.catalog.lists import PROVIDERS
from crucible.catalog.store import Library, Stock

__all__ = ["PROVIDERS", "Catalog", "Finding", "Library", "Need", "Rule", "Stock"]
