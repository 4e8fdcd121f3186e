"""When a machine was launched, queued and started, its node and its gang; which attempts are asked to stop.

Machines of before keep the times they have: for them, the clocks ran from their placement.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("launched_at", "queued_at", "started_at", "host_seconds", "life_seconds"):
        op.add_column("machines", sa.Column(name, sa.Float))
    op.add_column("machines", sa.Column("node", sa.String(120), nullable=False, server_default=""))
    op.add_column("machines", sa.Column("gang", sa.String(40)))
    op.add_column("machines", sa.Column("withdrawing", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("UPDATE machines SET started_at = created_at")
    op.create_index("ix_machines_node", "machines", ["node", "state"])
    op.add_column("attempts", sa.Column("stopping_since", sa.Float))
    op.add_column("slots", sa.Column("reason", sa.String(40)))
