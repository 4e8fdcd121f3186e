"""The line of each place is found without looking at every queued job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_QUEUED = sa.text("state = 'queued'")


def upgrade() -> None:
    # The state comes first, or SQLite thinks more of the index that has it first.
    columns = ["state", "backend", "id"]
    op.create_index("ix_jobs_line", "jobs", columns, sqlite_where=_QUEUED, postgresql_where=_QUEUED)
