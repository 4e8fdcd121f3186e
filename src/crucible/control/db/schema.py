"""The tables. Columns say what is true; JSON columns hold values that are only ever read whole."""

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
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

_SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column of type INTEGER."""

_ORDERED = String(40).with_variant(String(40, collation="C"), "postgresql")
"""Ids are compared byte by byte, whatever language a database server was set up for."""

_BYTEWISE = Text().with_variant(Text(collation="C"), "postgresql")
"""For texts that are found by how they begin."""

_DUE = text("due_at IS NOT NULL")

QUEUED = text("state = 'queued'")
"""As a condition it is found by `ix_jobs_line`, which holds those alone; with a parameter it would not be."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

meta = Table(
    "meta",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

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
    Column("id", _ORDERED, primary_key=True),
    Column("backwards", _ORDERED, nullable=False),
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
    Index("ix_jobs_state", "state", "id"),
    Index("ix_jobs_backwards", "backwards"),
    Index("ix_jobs_backend", "backend", "id"),
    Index("ix_jobs_project", "project", "id"),
    Index("ix_jobs_listed", "id", "state", "backend", "project", "created_at"),
    Index("ix_jobs_line", "state", "backend", "id", sqlite_where=QUEUED),
    Index("ix_jobs_due_at", "due_at", sqlite_where=_DUE),
)

PARTIAL = {"ix_jobs_line": QUEUED, "ix_jobs_due_at": _DUE}
"""Which rows these indexes hold. PostgreSQL is told when it is to make them: naming it here would load its dialect."""

listings = Table(
    "listings",
    metadata,
    Column("job", ForeignKey("jobs.id"), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("name", String(100)),
    Column("folded", _BYTEWISE, nullable=False),
    Column("words", Text, nullable=False),
    Index("ix_listings_kind", "kind", "job"),
    Index("ix_listings_name", "name", "job"),
    Index("ix_listings_folded", "folded", "job"),
    sqlite_with_rowid=False,
)
"""What a job is found by beside its state. Not in the job's row: changing its name is no step of its life.

`folded` is the name and `words` all that is searched, both without regard to case.
"""

job_tags = Table(
    "job_tags",
    metadata,
    Column("job", _ORDERED, primary_key=True),
    Column("key", String(100), primary_key=True),
    Column("value", String(200), nullable=False),
    Index("ix_job_tags_key", "key", "job"),
    Index("ix_job_tags_value", "key", "value", "job"),
    sqlite_with_rowid=False,
)
"""Without a reference to the job's row, which a step of its life may be changing: the two never wait for each other."""

job_notes = Table(
    "job_notes",
    metadata,
    Column("id", _ORDERED, primary_key=True),
    Column("job", _ORDERED, nullable=False),
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
    Column("acked", BigInteger, nullable=False, server_default="0"),
    Index("ix_slots_machine", "machine", "ended"),
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
    Column("lease_seconds", Float),
    Column("host_due", Float),
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
    Column("up_at", Float),
    Column("gone_at", Float),
    Column("ends_at", Float),
    Column("last_seen", Float),
    Column("desired_version", Integer, nullable=False, server_default="1"),
    Index("ix_machines_state", "state", "backend"),
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
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
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

events = Table(
    "events",
    metadata,
    Column("cursor", _SERIAL, primary_key=True, autoincrement=True),
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
    Index("ix_log_segments_end", "attempt", "rank", "end"),
)

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
    Index("ix_artifacts_job", "job"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("cursor", _SERIAL, primary_key=True, autoincrement=True),
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
"""What was told of jobs that follow a plan. How long they took is their attempt's to say."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("job", ForeignKey("jobs.id"), nullable=False),
    Column("created_at", Float, nullable=False),
)

roles = Table(
    "roles",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("holder", String(80), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("until", Float, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("admin", Boolean, nullable=False),
    Column("password", Text),
    Column("subject", String(300), unique=True),
    Column("created_at", Float, nullable=False),
    Column("disabled_at", Float),
    Column("email", String(254)),
    Column("issuer", String(300)),
    Index("ix_users_email", "email", unique=True),
)

signins = Table(
    "signins",
    metadata,
    Column("state", String(64), primary_key=True),
    Column("browser", String(64), nullable=False),
    Column("issuer", String(300), nullable=False),
    Column("nonce", String(64), nullable=False),
    Column("verifier", String(128), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("path", Text),
    Column("port", Integer),
    Column("challenge", String(64)),
    Column("echo", String(128)),
    Column("expires_at", Float, nullable=False),
    Index("ix_signins_expires_at", "expires_at"),
)

handovers = Table(
    "handovers",
    metadata,
    Column("code", String(64), primary_key=True),
    Column("user", ForeignKey("users.id"), nullable=False),
    Column("challenge", String(64), nullable=False),
    Column("expires_at", Float, nullable=False),
    Index("ix_handovers_expires_at", "expires_at"),
)

projects = Table(
    "projects",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("about", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("project", ForeignKey("projects.name"), primary_key=True),
    Column("user", ForeignKey("users.id"), primary_key=True),
    Column("role", String(20), nullable=False),
    Column("since", Float, nullable=False),
    Index("ix_members_user", "user"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("user", ForeignKey("users.id"), nullable=False),
    Column("name", String(100), nullable=False),
    Column("via", String(20), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("project", String(63)),
    Column("job", String(40)),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("used_at", Float),
    Column("revoked_at", Float),
    Index("ix_tokens_user", "user"),
)

holders = Table(
    "holders",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("user", String(40), primary_key=True),
)

audit = Table(
    "audit",
    metadata,
    Column("cursor", _SERIAL, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("user", String(40), nullable=False),
    Column("name", String(100), nullable=False),
    Column("via", String(20), nullable=False),
    Column("token", String(40)),
    Column("action", String(60), nullable=False),
    Column("target", String(200), nullable=False),
    Column("project", String(63)),
    Column("data", Text, nullable=False),
    Index("ix_audit_project", "project", "cursor"),
    sqlite_autoincrement=True,
)

secrets = Table(
    "secrets",
    metadata,
    Column("project", String(63), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("ciphertext", Text, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("updated_by", String(100), nullable=False),
)

hooks = Table(
    "hooks",
    metadata,
    Column("id", _ORDERED, primary_key=True),
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
"""`cursor`: how far in the feed its receiver has been told, or what it was not told was given up."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    Column("hook", _ORDERED, nullable=False),
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
"""Tries to tell a receiver something; the last of each hook."""
