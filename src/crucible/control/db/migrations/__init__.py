"""The steps that build the schema. A new one is a file in versions/ and a row here; old ones never change."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
"""Every revision this Crucible knows, oldest first. A database at any other was written by a newer one."""

SCHEMA_VERSION = REVISIONS[-1]
