"""Jobs, their names and tags for searching, and their attempts."""

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
    UniqueConstraint,
    text,
)

from crucible.control.db.tables.base import BYTEWISE, ORDERED, metadata

_DUE = text("due_at IS NOT NULL")

QUEUED = text("state = 'queued'")
"""A condition that lets SQLite use the partial index `ix_jobs_queue`; with a parameter in it, it would not."""

PRIORITISED = text("state = 'queued' AND priority <> 0")
"""The condition of the partial index `ix_jobs_priority`. Most queued jobs have no priority."""

WAITING = text("state IN ('pending', 'blocked', 'queued', 'provisioning')")
"""The condition of the partial index `ix_jobs_waiting`: the states whose status is queued."""

bundles = Table(
    "bundles",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", ORDERED, primary_key=True),
    Column("backwards", ORDERED, nullable=False),
    Column("project", String(100), nullable=False),
    Column("version", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("state", String(20), nullable=False),
    Column("desired", String(20), nullable=False),
    Column("reason", String(40)),
    Column("detail", Text, nullable=False),
    Column("waiting", Text, nullable=False),
    Column("placement", Text, nullable=False),
    Column("conditions", Text, nullable=False),
    Column("used", Text, nullable=False),
    Column("backend", String(40), nullable=False),
    Column("candidates", Text, nullable=False, server_default="[]"),
    Column("queue", Text, nullable=False, server_default=""),
    Column("spec", Text, nullable=False),
    Column("resources", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("events", Integer, nullable=False),
    Column("exit_code", BigInteger),
    Column("signal", BigInteger),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("not_before", Float, nullable=False),
    Column("due_at", Float),
    Column("resume_from", String(40)),
    Column("reopened_at", Integer, nullable=False, server_default="0"),
    Column("checkpoint", Integer, nullable=False, server_default="0"),
    Column("pruned_at", Float),
    Column("claimed_by", String(80)),
    Column("claimed_until", Float),
    Column("user", String(40), nullable=False, server_default=""),
    Column("priority", Integer, nullable=False, server_default="0"),
    Index("ix_jobs_state", "state", "id"),
    Index("ix_jobs_backwards", "backwards"),
    Index("ix_jobs_backend", "backend", "id"),
    Index("ix_jobs_project", "project", "id"),
    Index("ix_jobs_listed", "id", "state", "backend", "project", "created_at"),
    Index("ix_jobs_queue", "state", "queue", "id", sqlite_where=QUEUED),
    Index("ix_jobs_due_at", "due_at", sqlite_where=_DUE),
    Index("ix_jobs_priority", "queue", "user", "priority", "id", sqlite_where=PRIORITISED),
    Index("ix_jobs_waiting", "user", "id", sqlite_where=WAITING),
)

PARTIAL = {
    "ix_jobs_queue": QUEUED,
    "ix_jobs_due_at": _DUE,
    "ix_jobs_priority": PRIORITISED,
    "ix_jobs_waiting": WAITING,
}
"""Conditions of the partial indexes, for PostgreSQL: `postgresql_where` above would always load its dialect."""

listings = Table(
    "listings",
    metadata,
    Column("job", ForeignKey("jobs.id"), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("name", String(100)),
    Column("folded", BYTEWISE, nullable=False),
    Column("words", Text, nullable=False),
    Index("ix_listings_kind", "kind", "job"),
    Index("ix_listings_name", "name", "job"),
    Index("ix_listings_folded", "folded", "job"),
    sqlite_with_rowid=False,
)
"""What searches for jobs use beside their state. Separate from `jobs`, because a rename is not a state transition.

`folded` is the name and `words` all searched text, both case-folded.
"""

job_tags = Table(
    "job_tags",
    metadata,
    Column("job", ORDERED, primary_key=True),
    Column("key", String(100), primary_key=True),
    Column("value", String(200), nullable=False),
    Index("ix_job_tags_key", "key", "job"),
    Index("ix_job_tags_value", "key", "value", "job"),
    sqlite_with_rowid=False,
)
"""Without a foreign key, so that a change of tags and a state transition of the job never wait for each other."""

job_notes = Table(
    "job_notes",
    metadata,
    Column("id", ORDERED, primary_key=True),
    Column("job", ORDERED, nullable=False),
    Column("author", String(200), nullable=False),
    Column("text", Text, nullable=False),
    Column("at", Float, nullable=False),
    Index("ix_job_notes_job", "job", "id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("backend", String(40), nullable=False),
    Column("state", String(20), nullable=False),
    Column("reason", String(40)),
    Column("detail", Text, nullable=False),
    Column("exit_code", BigInteger),
    Column("signal", BigInteger),
    Column("pid", BigInteger),
    Column("placed_at", Float, nullable=False),
    Column("started_at", Float),
    Column("exited_at", Float),
    Column("ended_at", Float),
    Column("last_seen", Float),
    Column("resume_from", String(40)),
    Column("noticed_at", Float),
    Column("stopping_since", Float),
    Column("progress", Text),
    Column("facts", Text, nullable=False, server_default="{}"),
    UniqueConstraint("job", "number"),
)

slots = Table(
    "slots",
    metadata,
    Column("attempt", ForeignKey("attempts.id"), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("machine", String(40), nullable=False),
    Column("allocation", Text, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("reason", String(40)),
    Column("acked", BigInteger, nullable=False, server_default="0"),
    Index("ix_slots_machine", "machine", "ended"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("created_at", Float, nullable=False),
)
