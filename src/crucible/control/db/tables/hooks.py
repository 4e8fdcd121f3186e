"""Webhooks, and the attempts to deliver their messages."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from crucible.control.db.tables.base import ORDERED, SERIAL, metadata

hooks = Table(
    "hooks",
    metadata,
    Column("id", ORDERED, primary_key=True),
    Column("project", String(63), nullable=False),
    Column("url", Text, nullable=False),
    Column("events", Text, nullable=False),
    Column("format", String(20), nullable=False),
    Column("made_by", String(100), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("disabled", Text, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("not_before", Float, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("failing_since", Float),
    Column("given_up", Integer, nullable=False, server_default="0"),
    Column("rotated_at", Float),
    Index("ix_hooks_project", "project", "id"),
    Index("ix_hooks_enabled", "enabled", "id"),
)
"""`cursor`: position in the feed up to which events were delivered to the receiver, or given up."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("hook", ORDERED, nullable=False),
    Column("message", String(60), nullable=False),
    Column("type", String(60), nullable=False),
    Column("job", String(40)),
    Column("at", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("outcome", String(20), nullable=False),
    Column("status", Integer),
    Column("answer", Text, nullable=False),
    Index("ix_deliveries_hook", "hook", "id"),
    sqlite_autoincrement=True,
)
"""The latest delivery attempts of each hook."""
