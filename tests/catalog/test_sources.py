"""Sources: the AWS SDK is used where it is installed and has credentials, and never needed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from crucible.catalog.sources import Sources, boto_clients


class FakeSession:
    """As boto3's: clients for services, credentials or none."""

    credentials: object = None

    def get_credentials(self) -> object:
        return self.credentials

    def client(self, service: str, *, region_name: str) -> tuple[str, str]:
        return service, region_name


def install(monkeypatch: pytest.MonkeyPatch, session: type[Any] | None) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None if session is None else SimpleNamespace(Session=session))  # type: ignore[arg-type]


def test_without_the_sdk_there_are_no_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    assert boto_clients() is None
    assert Sources().aws_clients() is None


def test_without_credentials_there_are_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeSession)
    assert boto_clients() is None


def test_with_both_there_is_one_for_each_service_and_region(monkeypatch: pytest.MonkeyPatch) -> None:
    class Known(FakeSession):
        credentials = object()

    install(monkeypatch, Known)
    clients = boto_clients()
    assert clients is not None
    assert clients("ec2", "eu-west-1") == ("ec2", "eu-west-1")
