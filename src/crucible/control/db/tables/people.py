"""Users, their sign-ins, projects, tokens and secrets, and the audit log."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from crucible.control.db.tables.base import SERIAL, metadata

users = Table(
    "users",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("admin", Boolean, nullable=False),
    Column("password", Text),
    Column("subject", String(300), unique=True),
    Column("created_at", Float, nullable=False),
    Column("disabled_at", Float),
    Column("email", String(254)),
    Column("issuer", String(300)),
    Index("ix_users_email", "email", unique=True),
)

signins = Table(
    "signins",
    metadata,
    Column("state", String(64), primary_key=True),
    Column("browser", String(64), nullable=False),
    Column("issuer", String(300), nullable=False),
    Column("nonce", String(64), nullable=False),
    Column("verifier", String(128), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("path", Text),
    Column("port", Integer),
    Column("challenge", String(64)),
    Column("echo", String(128)),
    Column("expires_at", Float, nullable=False),
    Index("ix_signins_expires_at", "expires_at"),
)

handovers = Table(
    "handovers",
    metadata,
    Column("code", String(64), primary_key=True),
    Column("user", ForeignKey("users.id"), nullable=False),
    Column("challenge", String(64), nullable=False),
    Column("expires_at", Float, nullable=False),
    Index("ix_handovers_expires_at", "expires_at"),
)

projects = Table(
    "projects",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("about", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("project", ForeignKey("projects.name"), primary_key=True),
    Column("user", ForeignKey("users.id"), primary_key=True),
    Column("role", String(20), nullable=False),
    Column("since", Float, nullable=False),
    Index("ix_members_user", "user"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("user", ForeignKey("users.id"), nullable=False),
    Column("name", String(100), nullable=False),
    Column("via", String(20), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("project", String(63)),
    Column("job", String(40)),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("used_at", Float),
    Column("revoked_at", Float),
    Column("makes_until", Float),
    Index("ix_tokens_user", "user"),
    Index("ix_tokens_expires_at", "expires_at"),
    Index("ix_tokens_revoked_at", "revoked_at"),
)

holders = Table(
    "holders",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("user", String(40), primary_key=True),
)

audit = Table(
    "audit",
    metadata,
    Column("cursor", SERIAL, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("user", String(40), nullable=False),
    Column("name", String(100), nullable=False),
    Column("via", String(20), nullable=False),
    Column("token", String(40)),
    Column("action", String(60), nullable=False),
    Column("target", String(200), nullable=False),
    Column("project", String(63)),
    Column("data", Text, nullable=False),
    Index("ix_audit_project", "project", "cursor"),
    sqlite_autoincrement=True,
)

secrets = Table(
    "secrets",
    metadata,
    Column("project", String(63), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("ciphertext", Text, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("updated_by", String(100), nullable=False),
)
