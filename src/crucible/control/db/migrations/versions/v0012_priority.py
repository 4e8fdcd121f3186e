"""Give jobs a priority, which orders the waiting jobs of one user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_PRIORITISED = sa.text("state = 'queued' AND priority <> 0")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
    columns = ["backend", "user", "priority", "id"]
    op.create_index("ix_jobs_priority", "jobs", columns, sqlite_where=_PRIORITISED, postgresql_where=_PRIORITISED)
