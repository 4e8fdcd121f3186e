"""Connections to backends."""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, String, Table, Text

from crucible.control.db.tables.base import metadata

connections = Table(
    "connections",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("settings", Text, nullable=False),
    Column("secrets", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("closing_at", Float),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("updated_by", String(100), nullable=False),
)
"""`settings`: JSON without the secret ones. `secrets`: the names of those; their values are rows of `secrets`."""
