"""Everything the first release stores."""

from __future__ import annotations

from alembic import op

from crucible.control.db import feed_order
from crucible.control.db.schema import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No database is older than the first release, so its tables are taken as they stand in schema.py.

    The next revision must be explicit, and first freeze these tables here as they are now.
    """
    metadata.create_all(op.get_bind())
    feed_order.install(op.get_bind())
