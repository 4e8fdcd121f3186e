"""The steps that change the schema. A new one is a file in versions/ and a row here; old ones never change."""

REVISIONS = ("0011", "0012", "0013", "0014", "0015", "0016", "0017", "0018", "0019")
"""Every revision this Crucible knows, oldest first. The first is the schema of version 0.1.0."""

EARLIER = tuple(f"{n:04}" for n in range(1, 11))
"""Revisions of development versions. Databases that are still at one cannot be upgraded."""

SCHEMA_VERSION = REVISIONS[-1]
