"""`--database postgres` besieges a town on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.control.conftest import database, shared_worker
from tests.fast_passwords import quick_passwords
from tests.hostile.besieged import Besieged, kept_town
from tests.hostile.likely import settled
from tests.postgres import postgres_server, postgres_url

__all__ = ["database", "postgres_server", "postgres_url", "quick_passwords", "shared_worker"]


@pytest.fixture(scope="module")
def only_asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """One for all that reads, or is refused before anything is done: nothing changes in it."""
    with kept_town(tmp_path_factory.mktemp("town")) as found:
        found.run(settled(found.town))
        yield found
