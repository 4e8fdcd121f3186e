"""What jobs found out, as rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ORDERED = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "results",
        sa.Column("attempt", sa.String(40), sa.ForeignKey("attempts.id"), primary_key=True),
        sa.Column("job", _ORDERED, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("stored_at", sa.Float, nullable=False),
    )
    op.create_index("ix_results_job", "results", ["job"])
