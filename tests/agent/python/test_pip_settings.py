from __future__ import annotations

from pathlib import Path

from crucible.agent.python.pip_settings import uv_variables

CERTIFICATES = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}


def test_the_certificates_of_the_system_are_used(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert uv_variables({}, absent) == CERTIFICATES
    assert uv_variables({"UV_SYSTEM_CERTS": "0"}, absent) == {}


def test_pips_certificate_is_passed_on(tmp_path: Path) -> None:
    system = tmp_path / "pip.conf"
    system.write_text("[global]\ncert = /system.pem\n")
    assert uv_variables({}, system)["SSL_CERT_FILE"] == "/system.pem"
    assert uv_variables({"PIP_CERT": "/mine.pem"}, system)["SSL_CERT_FILE"] == "/mine.pem"
    assert "SSL_CERT_FILE" not in uv_variables({"SSL_CERT_FILE": "/set.pem"}, system)
    assert "SSL_CERT_FILE" not in uv_variables({"PIP_CONFIG_FILE": "/dev/null"}, system)


def test_places_of_packages_are_passed_on(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(
        "[global]\nindex-url = https://index\n[install]\nextra-index-url =\n  https://a\n  https://b\n"
    )
    env = {"HOME": str(tmp_path), "PIP_FIND_LINKS": "/wheels /more"}
    assert uv_variables(env, tmp_path / "absent") == {
        **CERTIFICATES,
        "UV_DEFAULT_INDEX": "https://index",
        "UV_INDEX": "https://a https://b",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert uv_variables({**env, "UV_INDEX": "https://mine"}, tmp_path / "absent") == CERTIFICATES


def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    for content in (b"no section\n", b"\xff\xfe", b"[global]\nx\n[global]\n"):
        (tmp_path / "pip.conf").write_bytes(content)
        assert uv_variables({}, tmp_path / "pip.conf") == CERTIFICATES
