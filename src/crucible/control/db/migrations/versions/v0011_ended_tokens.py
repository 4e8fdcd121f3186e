"""Tokens by when they ended: those that ended long ago are removed."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_tokens_expires_at", "tokens", ["expires_at"])
    op.create_index("ix_tokens_revoked_at", "tokens", ["revoked_at"])
