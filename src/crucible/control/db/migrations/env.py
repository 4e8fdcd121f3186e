"""Run by Alembic. The connection comes from migrate.py, already inside its transaction."""

from __future__ import annotations

from alembic import context

from crucible.control.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite can change most properties of a table only by rebuilding it
)
context.run_migrations()
