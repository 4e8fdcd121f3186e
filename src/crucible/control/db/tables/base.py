"""What the tables share: their metadata, and column types that behave alike on every database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData, String, Text

SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""A row number that the database assigns; SQLite does so only in a column of type INTEGER."""

ORDERED = String(40).with_variant(String(40, collation="C"), "postgresql")
"""An id, compared byte by byte whatever the default collation of the database server."""

BYTEWISE = Text().with_variant(Text(collation="C"), "postgresql")
"""Text compared byte by byte, so that an index finds prefixes."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
