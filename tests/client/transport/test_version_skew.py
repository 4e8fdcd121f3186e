from __future__ import annotations

import logging

import pytest

from crucible.client.transport.version_skew import IncompatibleServer, VersionCheck
from crucible.core.versions import API


def headers(version: str = "0.1.0", api: object = API) -> dict[str, str]:
    return {"X-Crucible-Version": version, "X-Crucible-Api": str(api)}


@pytest.fixture
def skew() -> VersionCheck:
    return VersionCheck(embedded=False, version="0.1.0")


@pytest.mark.parametrize("answer", [headers(), headers("0.1.7"), {}, headers("", ""), headers("what", "ever")])
def test_nothing_is_said_where_nothing_differs(
    skew: VersionCheck, answer: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    skew.check(answer)
    assert caplog.records == []


def test_another_version_is_told_once_with_what_to_do(skew: VersionCheck, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        skew.check(headers("0.2.0"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert "0.2.0" in said
    assert "0.1.0" in said
    assert "pip install crucible-ml==0.2.0" in said


def test_our_own_server_is_started_anew(caplog: pytest.LogCaptureFixture) -> None:
    VersionCheck(embedded=True, version="0.1.0").check(headers("0.2.0"))
    assert "crucible down" in caplog.text


def test_it_is_told_on_standard_error_where_nobody_set_up_logging(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("crucible")
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        assert not log.handlers
        VersionCheck(embedded=False, version="0.1.0").check(headers("0.2.0"))
    finally:
        root.handlers = handlers
    said = capsys.readouterr()
    assert "version 0.2.0" in said.err
    assert said.out == ""


@pytest.mark.parametrize("api", [API + 1, API - 1])
def test_an_api_of_another_number_is_refused_with_the_fix(skew: VersionCheck, api: int) -> None:
    with pytest.raises(IncompatibleServer) as refused:
        skew.check(headers("2.0.0", api))
    assert "2.0.0" in refused.value.fix
