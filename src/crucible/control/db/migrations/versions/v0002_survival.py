"""Checkpoints, and what a job needs to outlive its place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ORDERED = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")


def upgrade() -> None:
    for table, columns in _columns().items():
        for column in columns:
            op.add_column(table, column)
    _name_what_was_priced()
    _make_checkpoints()


def _columns() -> dict[str, list[sa.Column[object]]]:
    return {
        "jobs": [
            sa.Column("resume_from", sa.String(40)),
            sa.Column("reopened_at", sa.Integer, nullable=False, server_default="0"),
            sa.Column("checkpoint", sa.Integer, nullable=False, server_default="0"),
            sa.Column("pruned_at", sa.Float),
        ],
        "attempts": [
            sa.Column("resume_from", sa.String(40)),
            sa.Column("noticed_at", sa.Float),
        ],
        "machines": [
            sa.Column("market", sa.String(20), nullable=False, server_default="on_demand"),
            sa.Column("lease_seconds", sa.Float),
            sa.Column("host_due", sa.Float),
            sa.Column("simulated", sa.Boolean, nullable=False, server_default=sa.false()),
            sa.Column("metered", sa.Boolean, nullable=False, server_default=sa.false()),
        ],
        "price_segments": [
            sa.Column("native_id", sa.String(200), nullable=False, server_default=""),
        ],
    }


def _name_what_was_priced() -> None:
    """Until now a machine had one native id, so each of its segments is that one's."""
    op.execute(
        "UPDATE price_segments SET native_id = coalesce("
        "(SELECT native_id FROM machines WHERE machines.id = price_segments.machine), '')"
    )


def _make_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("cursor", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(40), nullable=False, unique=True),
        sa.Column("job", _ORDERED, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("attempt", sa.String(40), sa.ForeignKey("attempts.id"), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("form", sa.String(10), nullable=False),
        sa.Column("step", sa.BigInteger),
        sa.Column("metric", sa.Float),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("stored_at", sa.Float, nullable=False),
        sa.Column("pruned_at", sa.Float),
        sa.Column("why", sa.Text, nullable=False, server_default=""),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_checkpoints_job", "checkpoints", ["job", "cursor"])
