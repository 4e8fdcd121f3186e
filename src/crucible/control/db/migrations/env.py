"""Run by Alembic. The connection comes from migrate.py, already inside its transaction."""

from __future__ import annotations

from alembic import context

from crucible.control.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes most things about a table only by building it anew
)
context.run_migrations()
