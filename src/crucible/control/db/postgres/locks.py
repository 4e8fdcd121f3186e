"""Advisory locks on PostgreSQL: names for what no row stands for."""

LOCK_CLASS = 1_129_469_251
"""The first half of every lock of ours; the second says what it guards."""

SERIALIZED_WRITES = 1
"""Writes that collided go one at a time."""
FEED = 2
"""Events are numbered by one COMMIT at a time."""
MIGRATION = 3
"""One process brings the schema up to date."""
