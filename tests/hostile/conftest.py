"""With `--database postgres` the app runs on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.control.conftest import database, shared_worker
from tests.fast_passwords import quick_passwords
from tests.hostile.likely_values import settled
from tests.hostile.recording_client import RecordingClient, open_recording_client
from tests.postgres import postgres_server, postgres_url

__all__ = ["database", "postgres_server", "postgres_url", "quick_passwords", "shared_worker"]


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingClient]:
    """One client for all requests that only read or are refused early, so that nothing changes."""
    with open_recording_client(tmp_path_factory.mktemp("app")) as found:
        found.run(settled(found.app))
        yield found
