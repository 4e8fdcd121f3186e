"""All tables. Values that queries use are columns of their own; JSON columns hold values that are only read whole."""

from __future__ import annotations

from crucible.control.db.tables.base import metadata
from crucible.control.db.tables.connections import connections
from crucible.control.db.tables.hooks import deliveries, hooks
from crucible.control.db.tables.jobs import (
    PARTIAL,
    PRIORITISED,
    QUEUED,
    WAITING,
    attempts,
    bundles,
    idempotency,
    job_notes,
    job_tags,
    jobs,
    listings,
    slots,
)
from crucible.control.db.tables.machines import effects, machines, meta, price_segments, roles
from crucible.control.db.tables.people import (
    audit,
    handovers,
    holders,
    members,
    projects,
    secrets,
    signins,
    tokens,
    users,
)
from crucible.control.db.tables.records import (
    artifacts,
    checkpoints,
    events,
    log_segments,
    metric_blocks,
    plans,
    predictions,
    results,
    uploads,
)

__all__ = [
    "PARTIAL",
    "PRIORITISED",
    "QUEUED",
    "WAITING",
    "artifacts",
    "attempts",
    "audit",
    "bundles",
    "checkpoints",
    "connections",
    "deliveries",
    "effects",
    "events",
    "handovers",
    "holders",
    "hooks",
    "idempotency",
    "job_notes",
    "job_tags",
    "jobs",
    "listings",
    "log_segments",
    "machines",
    "members",
    "meta",
    "metadata",
    "metric_blocks",
    "plans",
    "predictions",
    "price_segments",
    "projects",
    "results",
    "roles",
    "secrets",
    "signins",
    "slots",
    "tokens",
    "uploads",
    "users",
]
