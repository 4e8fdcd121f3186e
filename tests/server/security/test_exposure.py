"""Who can reach the server, and what that needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.certificates import make_certificate

from crucible.core.errors import BadInput, RefusedByPolicy
from crucible.server.http.listen import TlsFiles
from crucible.server.security.exposure import Exposure, agents_hosts, check_agents_url, check_exposure, check_people

PUBLIC = "https://crucible.example.org"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_computer_is_fine(host: str) -> None:
    check_exposure(Exposure(host))
    check_people(Exposure(host), can_log_in=False)
    assert not Exposure(host).is_public


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_anything_beyond_is_refused_in_the_open(host: str) -> None:
    with pytest.raises(RefusedByPolicy) as caught:
        check_exposure(Exposure(host, PUBLIC))
    assert "--host 127.0.0.1" in caught.value.fix


def test_encrypted_it_is_reached_by_its_name(tmp_path: Path) -> None:
    reach = Exposure("0.0.0.0", PUBLIC, TlsFiles(*make_certificate(tmp_path)))
    check_exposure(reach)
    assert (reach.is_public, reach.is_encrypted, reach.hosts) == (True, True, {"crucible.example.org"})


def test_a_name_is_needed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not know the host name"):
        check_exposure(Exposure("0.0.0.0", None, TlsFiles(*make_certificate(tmp_path))))


def test_behind_a_proxy_that_encrypts() -> None:
    check_exposure(Exposure("127.0.0.1", PUBLIC, proxied=True))
    with pytest.raises(RefusedByPolicy):
        check_exposure(Exposure("127.0.0.1", "http://crucible.example.org", proxied=True))


def test_users_are_needed_beyond() -> None:
    reach = Exposure("127.0.0.1", PUBLIC, proxied=True)
    check_people(reach, can_log_in=True)
    with pytest.raises(RefusedByPolicy) as caught:
        check_people(reach, can_log_in=False)
    assert "crucible users add" in caught.value.fix


@pytest.mark.parametrize("wrong", ["missing", "empty", "swapped"])
def test_a_certificate_that_is_none(tmp_path: Path, wrong: str) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = {
        "missing": TlsFiles(tmp_path / "nothing.pem", key),
        "empty": TlsFiles(Path("/dev/null"), key),
        "swapped": TlsFiles(key, certificate),
    }[wrong]
    with pytest.raises(BadInput) as caught:
        check_exposure(Exposure("0.0.0.0", PUBLIC, tls))
    assert "PEM" in caught.value.fix


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8001", "http://[::1]:8001", "http://localhost", PUBLIC])
def test_agents_may_call_this_computer_or_an_address_that_encrypts(url: str | None) -> None:
    check_agents_url(url)


@pytest.mark.parametrize("url", ["http://crucible.example.org", "http://192.168.1.5:8001", "http://0.0.0.0:8001"])
def test_agents_do_not_send_their_secrets_in_the_open(url: str) -> None:
    with pytest.raises(RefusedByPolicy) as caught:
        check_agents_url(url)
    assert "https://" in caught.value.fix


def test_the_agents_port_answers_to_the_names_it_is_called_by() -> None:
    assert agents_hosts(Exposure("::1"), "https://agents.example:8443/below") == {"::1", "agents.example"}
    assert agents_hosts(Exposure("127.0.0.1", PUBLIC), "nonsense") == {"127.0.0.1", "crucible.example.org"}
