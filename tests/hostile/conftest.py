"""`--database postgres` besieges a town on a real server."""

from __future__ import annotations

from tests.control.conftest import database, kept_reader
from tests.postgres import postgres_server, postgres_url

__all__ = ["database", "kept_reader", "postgres_server", "postgres_url"]
