"""What the tables share: their register, and types that mean the same on every database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData, String, Text

SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column of type INTEGER."""

ORDERED = String(40).with_variant(String(40, collation="C"), "postgresql")
"""Ids are compared byte by byte, whatever language a database server was set up for."""

BYTEWISE = Text().with_variant(Text(collation="C"), "postgresql")
"""For texts that are found by how they begin."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
