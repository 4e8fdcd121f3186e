"""Store with each job the backends and markets on which it may run, and queue it by all of its backends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_QUEUED = sa.text("state = 'queued'")
_PRIORITISED = sa.text("state = 'queued' AND priority <> 0")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("candidates", sa.Text, nullable=False, server_default="[]"))
    op.add_column("jobs", sa.Column("queue", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE jobs SET queue = backend")
    op.drop_index("ix_jobs_line", "jobs")
    op.drop_index("ix_jobs_priority", "jobs")
    columns = ["state", "queue", "id"]
    op.create_index("ix_jobs_queue", "jobs", columns, sqlite_where=_QUEUED, postgresql_where=_QUEUED)
    columns = ["queue", "user", "priority", "id"]
    op.create_index("ix_jobs_priority", "jobs", columns, sqlite_where=_PRIORITISED, postgresql_where=_PRIORITISED)
