"""Users sign in with an OpenID provider."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("email", sa.String(254)))
    op.add_column("users", sa.Column("issuer", sa.String(300)))
    op.create_index("ix_users_email", "users", ["email"], unique=True)
    op.create_table(
        "signins",
        sa.Column("state", sa.String(64), nullable=False),
        sa.Column("browser", sa.String(64), nullable=False),
        sa.Column("issuer", sa.String(300), nullable=False),
        sa.Column("nonce", sa.String(64), nullable=False),
        sa.Column("verifier", sa.String(128), nullable=False),
        sa.Column("redirect_uri", sa.Text, nullable=False),
        sa.Column("path", sa.Text),
        sa.Column("port", sa.Integer),
        sa.Column("challenge", sa.String(64)),
        sa.Column("echo", sa.String(128)),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("state", name="pk_signins"),
    )
    op.create_index("ix_signins_expires_at", "signins", ["expires_at"])
    op.create_table(
        "handovers",
        sa.Column("code", sa.String(64), nullable=False),
        sa.Column("user", sa.String(40), nullable=False),
        sa.Column("challenge", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("code", name="pk_handovers"),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name="fk_handovers_user"),
    )
    op.create_index("ix_handovers_expires_at", "handovers", ["expires_at"])
