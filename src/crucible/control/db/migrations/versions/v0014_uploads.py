"""Uploads that no message announces, and names of objects that hold the hash of their content."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("artifacts", "log_segments"):
        op.add_column(table, sa.Column("hashed", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "uploads",
        sa.Column("attempt", sa.String(40), nullable=False),
        sa.Column("key", sa.String(300), nullable=False),
        sa.Column("path", sa.String(1024), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored_by", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("attempt", "key", "path", name="pk_uploads"),
        sa.ForeignKeyConstraint(["attempt"], ["attempts.id"], name="fk_uploads_attempt"),
    )
