"""What jobs produce: events, output, metrics, files and results; their plans and predictions."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from crucible.control.db.tables.base import SERIAL, metadata

events = Table(
    "events",
    metadata,
    Column("cursor", SERIAL, primary_key=True, autoincrement=True),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("n", Integer, nullable=False),
    Column("type", String(40), nullable=False),
    Column("at", Float, nullable=False),
    Column("data", Text, nullable=False),
    UniqueConstraint("job", "n"),
    sqlite_autoincrement=True,
)

log_segments = Table(
    "log_segments",
    metadata,
    Column("attempt", ForeignKey("attempts.id"), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("stored_at", Float, nullable=False),
    Column("hashed", Boolean, nullable=False, server_default=false()),
    Index("ix_log_segments_end", "attempt", "rank", "end"),
)
"""`hashed`: the object's name holds the hash of its content; not so what version 0.1.0 stored."""

metric_blocks = Table(
    "metric_blocks",
    metadata,
    Column("attempt", ForeignKey("attempts.id"), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("series", String(200), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("points", Integer, nullable=False),
    Column("low", Float),
    Column("high", Float),
    Column("last", Float),
    Column("extremes", LargeBinary, nullable=False),
    Column("levels", LargeBinary, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("attempt", ForeignKey("attempts.id"), primary_key=True),
    Column("path", String(1024), primary_key=True),
    Column("rank", Integer, nullable=False),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("stored_at", Float, nullable=False),
    Column("hashed", Boolean, nullable=False, server_default=false()),
    Index("ix_artifacts_job", "job"),
)
"""`hashed`: as in `log_segments`."""

uploads = Table(
    "uploads",
    metadata,
    Column("attempt", ForeignKey("attempts.id"), primary_key=True),
    Column("key", String(300), primary_key=True),
    Column("path", String(1024), primary_key=True),
    Column("rank", Integer, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_by", Float, nullable=False),
)
"""Objects that attempts have stored, or are storing, and have not announced. `path` is that of an artifact, else empty.

From `stored_by` on the object is in the store or will never be.
"""

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("cursor", SERIAL, primary_key=True, autoincrement=True),
    Column("id", String(40), nullable=False, unique=True),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("attempt", ForeignKey("attempts.id"), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("name", String(255), nullable=False),
    Column("form", String(10), nullable=False),
    Column("step", BigInteger),
    Column("metric", Float),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("stored_at", Float, nullable=False),
    Column("pruned_at", Float),
    Column("why", Text, nullable=False, server_default=""),
    Index("ix_checkpoints_job", "job", "cursor"),
    sqlite_autoincrement=True,
)

results = Table(
    "results",
    metadata,
    Column("attempt", ForeignKey("attempts.id"), primary_key=True),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("value", Text, nullable=False),
    Column("stored_at", Float, nullable=False),
    Index("ix_results_job", "job"),
)

predictions = Table(
    "predictions",
    metadata,
    Column("job", ForeignKey("jobs.id"), primary_key=True),
    Column("project", String(100), nullable=False),
    Column("script", String(64), nullable=False),
    Column("framework", String(100), nullable=False),
    Column("gpu", String(100), nullable=False),
    Column("backend", String(40), nullable=False),
    Column("instance_type", String(100), nullable=False),
    Column("analytic_seconds", Float, nullable=False),
    Column("predicted_seconds", Float, nullable=False),
    Column("made_at", Float, nullable=False),
    Index("ix_predictions_project", "project", "job"),
    sqlite_with_rowid=False,
)
"""Predicted runtimes of jobs. The actual ones follow from their attempts."""

plans = Table(
    "plans",
    metadata,
    Column("job", ForeignKey("jobs.id"), primary_key=True),
    Column("tries", Integer, nullable=False),
    Column("due_at", Float),
    Column("made_at", Float),
    Column("document", Text),
    Index("ix_plans_due_at", "due_at"),
)
"""The plan of each job. `due_at`: time of the next attempt to make it; NULL once it is stored or given up."""
