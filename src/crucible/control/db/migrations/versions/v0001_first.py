"""Everything the first release stores."""

from __future__ import annotations

from alembic import op

from crucible.control.db import feed_order
from crucible.control.db.migrations.tables_0001 import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    feed_order.install(op.get_bind())
