"""The schema of version 0.1.0, where the revisions begin."""

from __future__ import annotations

revision = "0011"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Does nothing: an empty database gets the newest schema at once (`migrate.create`)."""
