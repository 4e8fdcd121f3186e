from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.storage.fake_gcs import fake_gcs
from tests.storage.servers import Server, azurite, seaweedfs

pytest.register_assert_rewrite("tests.storage.conformance")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    with seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[Server]:
    with azurite() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[Server]:
    with fake_gcs() as server:
        yield server


@pytest.fixture(autouse=True)
def no_instance_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks the machine that runs the tests for credentials."""
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    for name in ("GCE_METADATA_HOST", "METADATA_HOST"):
        monkeypatch.setenv(name, "127.0.0.1:1")
    for name in ("IDENTITY_ENDPOINT", "MSI_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
