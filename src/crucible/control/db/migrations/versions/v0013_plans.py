"""The plans of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_ORDERED = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "plans",
        sa.Column("job", _ORDERED, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Float),
        sa.Column("made_at", sa.Float),
        sa.Column("document", sa.Text),
        sa.PrimaryKeyConstraint("job", name="pk_plans"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_plans_job"),
    )
    op.create_index("ix_plans_due_at", "plans", ["due_at"])
