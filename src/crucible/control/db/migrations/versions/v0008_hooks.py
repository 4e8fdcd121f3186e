"""Hooks of projects, and what came of telling them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ORDERED = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")


def upgrade() -> None:
    _make_hooks()
    _make_deliveries()


def _make_hooks() -> None:
    op.create_table(
        "hooks",
        sa.Column("id", _ORDERED, nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("format", sa.String(20), nullable=False),
        sa.Column("made_by", sa.String(100), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("disabled", sa.Text, nullable=False),
        sa.Column("cursor", sa.BigInteger, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("failing_since", sa.Float),
        sa.Column("given_up", sa.Integer, nullable=False, server_default="0"),
        sa.Column("rotated_at", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_hooks"),
    )
    op.create_index("ix_hooks_project", "hooks", ["project", "id"])
    op.create_index("ix_hooks_enabled", "hooks", ["enabled", "id"])


def _make_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", _SERIAL, nullable=False, autoincrement=True),
        sa.Column("hook", _ORDERED, nullable=False),
        sa.Column("message", sa.String(60), nullable=False),
        sa.Column("type", sa.String(60), nullable=False),
        sa.Column("job", sa.String(40)),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("answer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_hook", "deliveries", ["hook", "id"])
