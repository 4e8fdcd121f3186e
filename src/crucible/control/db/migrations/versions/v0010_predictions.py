"""How long jobs were predicted to take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_ORDERED = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "predictions",
        sa.Column("job", _ORDERED, nullable=False),
        sa.Column("project", sa.String(100), nullable=False),
        sa.Column("script", sa.String(64), nullable=False),
        sa.Column("framework", sa.String(100), nullable=False),
        sa.Column("gpu", sa.String(100), nullable=False),
        sa.Column("backend", sa.String(40), nullable=False),
        sa.Column("instance_type", sa.String(100), nullable=False),
        sa.Column("analytic_seconds", sa.Float, nullable=False),
        sa.Column("predicted_seconds", sa.Float, nullable=False),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_predictions"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_predictions_job"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_predictions_project", "predictions", ["project", "job"])
