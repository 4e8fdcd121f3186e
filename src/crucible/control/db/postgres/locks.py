"""Keys of the advisory locks on PostgreSQL."""

LOCK_CLASS = 1_129_469_251
"""First key of all locks of Crucible; the second key is one of those below."""

SERIALIZED_WRITES = 1
"""Held by a write that had a conflict, so that such writes run one at a time."""
FEED = 2
"""Held while a COMMIT numbers its events."""
MIGRATION = 3
"""Held by the process that upgrades the schema."""
