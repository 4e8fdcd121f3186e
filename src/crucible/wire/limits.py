"""How much one job may carry along."""

DEFAULT_LIMIT = 500_000_000
"""Bytes of code, unless the settings say otherwise."""

MAX_FILES = 100_000
