"""Jobs are found by name, kind, tags and words; they have notes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ORDERED = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")
_BYTEWISE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_BATCH = 1000
_MAX_WORDS = 1000


def upgrade() -> None:
    op.create_index("ix_jobs_backend", "jobs", ["backend", "id"])
    op.create_index("ix_jobs_listed", "jobs", ["id", "state", "backend", "project", "created_at"])
    _make_listings()
    _make_tags()
    _make_notes()
    _fill(op.get_bind())


def _make_listings() -> None:
    op.create_table(
        "listings",
        sa.Column("job", _ORDERED, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("name", sa.String(100)),
        sa.Column("folded", _BYTEWISE, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    for column in ("kind", "name", "folded"):
        op.create_index(f"ix_listings_{column}", "listings", [column, "job"])


def _make_tags() -> None:
    op.create_table(
        "job_tags",
        sa.Column("job", _ORDERED, primary_key=True),
        sa.Column("key", sa.String(100), primary_key=True),
        sa.Column("value", sa.String(200), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_job_tags_key", "job_tags", ["key", "job"])
    op.create_index("ix_job_tags_value", "job_tags", ["key", "value", "job"])


def _make_notes() -> None:
    op.create_table(
        "job_notes",
        sa.Column("id", _ORDERED, primary_key=True),
        sa.Column("job", _ORDERED, nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("ix_job_notes_job", "job_notes", ["job", "id"])


def _fill(conn: sa.Connection) -> None:
    """The jobs that are there are listed like new ones."""
    listings = sa.table("listings", *map(sa.column, ("job", "kind", "name", "folded", "words")))
    tags = sa.table("job_tags", *map(sa.column, ("job", "key", "value")))
    for batch in _specs(conn):
        conn.execute(sa.insert(listings), [_listing(job, spec) for job, spec in batch])
        labels = [row for job, spec in batch for row in _tags(job, spec)]
        if labels:
            conn.execute(sa.insert(tags), labels)


def _specs(conn: sa.Connection) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    jobs = sa.table("jobs", sa.column("id"), sa.column("spec"))
    last = ""
    while True:
        query = sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.id > last).order_by(jobs.c.id).limit(_BATCH)
        found = [(row.id, _read(row.spec)) for row in conn.execute(query).all()]
        if not found:
            return
        yield found
        last = found[-1][0]


def _read(spec: str) -> dict[str, Any]:
    """What cannot be read is listed without a name: a migration is not what should find that out."""
    found = json.loads(spec)
    return found if isinstance(found, dict) else {}


def _listing(job: str, spec: dict[str, Any]) -> dict[str, object]:
    name, source = spec.get("name"), spec.get("source") or {}
    words = " ".join([*spec.get("command", ()), source.get("path") or "", source.get("url") or ""])
    return {
        "job": job,
        "kind": spec.get("kind") or "train",
        "name": name,
        "folded": (name or "").casefold(),
        "words": words.casefold()[:_MAX_WORDS],
    }


def _tags(job: str, spec: dict[str, Any]) -> list[dict[str, str]]:
    parts = [tag.partition("=") for tag in spec.get("tags") or ()]
    found = {key.strip(): value.strip() for key, _, value in parts if key.strip()}
    return [{"job": job, "key": key, "value": value} for key, value in found.items()]
