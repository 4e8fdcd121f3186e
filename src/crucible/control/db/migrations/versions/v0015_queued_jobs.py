"""An index of the queued jobs of each user, whose number is limited."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_WAITING = sa.text("state IN ('pending', 'blocked', 'queued', 'provisioning')")


def upgrade() -> None:
    op.create_index("ix_jobs_waiting", "jobs", ["user", "id"], sqlite_where=_WAITING, postgresql_where=_WAITING)
