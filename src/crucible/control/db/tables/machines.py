"""Machines, their prices, the pending effects on them, and the roles of control processes."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    false,
)

from crucible.control.db.tables.base import SERIAL, metadata

meta = Table(
    "meta",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

machines = Table(
    "machines",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("backend", String(40), nullable=False),
    Column("owner", String(120), nullable=False),
    Column("state", String(20), nullable=False),
    Column("call", Text, nullable=False),
    Column("rate", BigInteger, nullable=False),
    Column("billing", Text, nullable=False),
    Column("bills", Boolean, nullable=False),
    Column("capacity", Text, nullable=False),
    Column("instance_type", String(100), nullable=False),
    Column("region", String(100), nullable=False),
    Column("market", String(20), nullable=False, server_default="on_demand"),
    Column("node", String(120), nullable=False, server_default=""),
    Column("gang", String(40)),
    Column("lease_seconds", Float),
    Column("host_due", Float),
    Column("host_seconds", Float),
    Column("life_seconds", Float),
    Column("simulated", Boolean, nullable=False, server_default=false()),
    Column("metered", Boolean, nullable=False, server_default=false()),
    Column("native_id", String(200)),
    Column("claimed_by", String(200)),
    Column("launch_settled", Boolean, nullable=False),
    Column("launch_deadline", Float, nullable=False),
    Column("empty_finds", Integer, nullable=False),
    Column("settle_window", Float, nullable=False),
    Column("gone_sightings", Integer, nullable=False),
    Column("gone_since", Float),
    Column("interrupted", Boolean, nullable=False),
    Column("detail", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("launched_at", Float),
    Column("queued_at", Float),
    Column("started_at", Float),
    Column("up_at", Float),
    Column("gone_at", Float),
    Column("ends_at", Float),
    Column("last_seen", Float),
    Column("withdrawing", Boolean, nullable=False, server_default=false()),
    Column("desired_version", Integer, nullable=False, server_default="1"),
    Index("ix_machines_state", "state", "backend"),
    Index("ix_machines_node", "node", "state"),
)

price_segments = Table(
    "price_segments",
    metadata,
    Column("machine", ForeignKey("machines.id"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("starts_at", Float, nullable=False),
    Column("ends_at", Float),
    Column("rate", BigInteger, nullable=False),
    Column("native_id", String(200), nullable=False, server_default=""),
)

effects = Table(
    "effects",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("machine", ForeignKey("machines.id"), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("done", Boolean, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("not_before", Float, nullable=False),
    Column("claimed_by", String(80)),
    Column("claimed_until", Float),
    Column("created_at", Float, nullable=False),
    Column("error", Text),
    Index("ix_effects_done", "done", "machine", "id"),
    sqlite_autoincrement=True,
)

roles = Table(
    "roles",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("holder", String(80), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("until", Float, nullable=False),
)
