"""Users, projects, tokens, and who did what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("user", sa.String(40), nullable=False, server_default=""))
    op.create_index("ix_jobs_project", "jobs", ["project", "id"])
    _make_users()
    _make_projects()
    _make_tokens()
    op.create_table(
        "holders",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("user", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "user", name="pk_holders"),
    )
    _make_audit()


def _make_users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("admin", sa.Boolean, nullable=False),
        sa.Column("password", sa.Text),
        sa.Column("subject", sa.String(300)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("disabled_at", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
        sa.UniqueConstraint("subject", name="uq_users_subject"),
    )


def _make_projects() -> None:
    op.create_table(
        "projects",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_projects"),
    )
    op.create_table(
        "members",
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("user", sa.String(40), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("project", "user", name="pk_members"),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name="fk_members_project"),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name="fk_members_user"),
    )
    op.create_index("ix_members_user", "members", ["user"])


def _make_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("user", sa.String(40), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("via", sa.String(20), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("project", sa.String(63)),
        sa.Column("job", sa.String(40)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("used_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name="fk_tokens_user"),
    )
    op.create_index("ix_tokens_user", "tokens", ["user"])


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("cursor", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("user", sa.String(40), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("via", sa.String(20), nullable=False),
        sa.Column("token", sa.String(40)),
        sa.Column("action", sa.String(60), nullable=False),
        sa.Column("target", sa.String(200), nullable=False),
        sa.Column("project", sa.String(63)),
        sa.Column("data", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("cursor", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_project", "audit", ["project", "cursor"])
